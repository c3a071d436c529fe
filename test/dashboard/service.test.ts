/** The dashboard of a service on the scripted engine, over HTTP. */
import { appendFile, mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { compare, openRun } from "../../src/lab/experiment/index.ts";
import { startTestService, type TestService } from "../../src/testing/index.ts";
import { HOSTILE, writeRun } from "../report/run-fixture.ts";
import { generateRun } from "./generated-runs.ts";

let service: TestService;
let root: string;
let run: string;
let cookie: string;

beforeAll(async () => {
  root = await realpath(await writeRun());
  service = await startTestService({ runs: [root] });
  cookie = await login(await createLink());
  run = (await json("/ui/api/runs"))[0].id;
});
afterAll(async () => {
  await service.close({ graceMs: 0 });
  await rm(root, { recursive: true });
});

const call = (path: string, init: RequestInit = {}) => fetch(service.url + path, { redirect: "manual", ...init });
const bearer = () => ({ authorization: `Bearer ${service.apiKey}` });

/** Body of a request with the session. */
// Tests look into answers of every shape.
async function json(path: string, init: Omit<RequestInit, "headers"> & { readonly headers?: Record<string, string> } = {}): Promise<any> {
  return (await call(path, { ...init, headers: { cookie, ...init.headers } })).json();
}

async function createLink(): Promise<string> {
  const answer = await call("/ui/api/links", { method: "POST", headers: bearer() });
  expect(answer.status).toBe(201);
  return ((await answer.json()) as { url: string }).url;
}

async function login(link: string): Promise<string> {
  const answer = await fetch(link, { redirect: "manual" });
  expect([answer.status, answer.headers.get("location")]).toEqual([303, "/ui/"]);
  const [set = ""] = answer.headers.getSetCookie();
  expect(set).toMatch(/; HttpOnly; SameSite=Strict$/);
  return set.split(";")[0] ?? "";
}

describe("the session", () => {
  it("comes from a link that works once, and HEAD does not use the link up", async () => {
    const link = await createLink();
    expect((await fetch(link, { method: "HEAD", redirect: "manual" })).status).toBe(401);
    await login(link);
    const second = await fetch(link);
    expect([second.status, await second.text()]).toEqual([401, expect.stringContaining("no longer valid")]);
  });

  it("authorizes the data of the dashboard and the routes of the service", async () => {
    expect(await json("/ui/api/session")).toEqual({ expires: expect.stringMatching(/^\d{4}-/) as string });
    expect((await json("/v1/models")).data).toHaveLength(1);
    const body = JSON.stringify({ model: "whetstone-tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 1 });
    const headers = { "content-type": "application/json", origin: service.url };
    expect((await json("/v1/chat/completions", { method: "POST", headers, body })).choices).toHaveLength(1);
  });

  it("authorizes no request of another page or host", async () => {
    const body = JSON.stringify({ project: "demo", name: "stolen", base_model: "whetstone-tiny" });
    for (const headers of [{ origin: "http://127.0.0.1:1" }, { "sec-fetch-site": "same-site" }, {}]) {
      const init = { method: "POST", headers: { cookie, "content-type": "application/json", ...headers }, body };
      expect((await call("/v1/preview/models", init)).status).toBe(401);
    }
    const renamed = service.url.replace("127.0.0.1", "localhost");
    expect((await fetch(`${renamed}/ui/api/runs`, { headers: { cookie } })).status).toBe(401);
    expect((await json("/v1/models")).data).toHaveLength(1);
  });

  it("cannot create links or open directories", async () => {
    for (const path of ["/ui/api/links", "/ui/api/directories"]) {
      const init = { method: "POST", headers: { cookie, origin: service.url }, body: JSON.stringify({ paths: ["/"] }) };
      expect([path, (await call(path, init)).status]).toEqual([path, 401]);
    }
  });

  it("is required, or the API key, for all data", async () => {
    for (const path of ["/ui/api/runs", "/ui/api/session", `/ui/api/runs/${run}`, "/ui/api/events", "/ui/api/nothing"]) {
      expect([path, (await call(path)).status]).toEqual([path, 401]);
    }
    expect((await call("/ui/api/runs", { headers: bearer() })).status).toBe(200);
    expect((await call("/ui/api/nothing", { headers: { cookie } })).status).toBe(404);
  });
});

describe("the page", () => {
  it("needs no key, contains no data, and allows only its own script and style sheet", async () => {
    expect((await call("/ui")).headers.get("location")).toBe("/ui/");
    const [first, second] = [await call("/ui/"), await call("/ui/")];
    const [html, policy] = [await first.text(), first.headers.get("content-security-policy") ?? ""];
    const [, nonce] = /script-src 'nonce-([^']+)'/.exec(policy) ?? [];
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).not.toMatch(/unsafe|\*/);
    expect(html.match(/nonce="([^"]+)"/g)).toEqual([`nonce="${nonce}"`, `nonce="${nonce}"`]);
    expect(second.headers.get("content-security-policy")).not.toBe(policy);
    expect(html).not.toContain(service.apiKey);
    expect(html).not.toMatch(/https?:/);
  });

  it("has a script and a style sheet that load nothing from elsewhere", async () => {
    const [script, style] = [await call("/ui/page.js"), await call("/ui/page.css")];
    expect([script.headers.get("content-type"), style.headers.get("content-type")]).toEqual([
      "text/javascript; charset=utf-8",
      "text/css; charset=utf-8",
    ]);
    expect(script.headers.get("x-content-type-options")).toBe("nosniff");
    expect(await script.text()).toContain("api/runs");
    expect(await style.text()).not.toMatch(/url\(["']?https?:/);
  });
});

describe("the data", () => {
  it("lists the runs with their state", async () => {
    const [found, ...more] = await json("/ui/api/runs");
    expect(more).toEqual([]);
    expect(found).toMatchObject({
      ...{ path: root, model: "whetstone-tiny", state: "ended", ended: "completed", steps: 3, reward: 0.5, evalReward: 0.75 },
      ...{ rewards: [0.5, 0.9, 0.5], updated: "2026-01-02T03:05:05.000Z", problem: null },
    });
  });

  it("describes a run, and hides settings that look like credentials", async () => {
    const details = await json(`/ui/api/runs/${run}`);
    expect(details.config).toContainEqual(["service.apiKey", "(hidden)"]);
    expect(details.notices).toEqual([{ type: "warning", step: 1, message: `careful ${HOSTILE}` }]);
    expect(details.metricNames).toEqual({ train: ["custom/number", "loss", "reward/mean", "reward/std"], eval: ["reward/mean"] });
    expect(details.checkpoints.map(({ step, state }: { step: number; state: string }) => [step, state])).toEqual([
      [1, "deleted"],
      [2, "kept"],
    ]);
  });

  it("returns chosen metrics of several runs", async () => {
    const [first, second] = await json(`/ui/api/metrics?run=${run}&run=${run}&name=loss`);
    expect(first).toMatchObject({
      run,
      metrics: { train: { steps: [0, 1, 2], columns: { loss: [0, -0.25, -0.5] } }, eval: { columns: {} } },
    });
    expect(second).toEqual(first);
    expect(first.position).toMatch(/^\d+\.\d+$/);
  });

  it("lists the steps with their files", async () => {
    expect((await json(`/ui/api/runs/${run}/steps`)).map(({ split, step, reward }: any) => [split, step, reward])).toEqual([
      ["train", 0, 0.5],
      ["train", 1, 0.9],
      ["train", 2, 0.5],
      ["eval", 2, 0.75],
    ]);
  });

  it("pages the groups of a step, with advantages and without contents", async () => {
    const path = `/ui/api/runs/${run}/steps/train/1/groups`;
    const { total, offset, items } = await json(`${path}?offset=1&limit=1`);
    expect([total, offset, items.map(({ id }: any) => id)]).toEqual([2, 1, ["item-1"]]);
    const [group] = (await json(path)).items;
    // (1, 0, 0) has mean 1/3 and population deviation √2/3.
    expect(group.trajectories[0]).toMatchObject({ reward: 1, advantage: expect.closeTo(Math.SQRT2, 4) as number, detail: null });
  });

  it("marks the groups that the filters of the run discarded", async () => {
    const marks = async (step: number) =>
      (await json(`/ui/api/runs/${run}/steps/train/${step}/groups`)).items.map(({ isDiscarded }: any) => isDiscarded);
    expect([await marks(1), await marks(2)]).toEqual([
      [false, true],
      [false, false],
    ]);
    expect((await json(`/ui/api/runs/${run}/steps/train/1/trajectories/2/0`)).group).toMatchObject({ id: "item-1", isDiscarded: true });
  });

  it("sorts and selects the trajectories of a step", async () => {
    const rows = async (query: string) =>
      (await json(`/ui/api/runs/${run}/steps/train/0/trajectories?${query}`)).items.map(({ line, index, reward }: any) => [
        line,
        index,
        reward,
      ]);
    expect(await rows("sort=reward&order=descending&limit=3")).toEqual([
      [1, 0, 1],
      [2, 0, 0.5],
      [2, 1, 0.5],
    ]);
    expect(await rows("min=0.1&max=0.9")).toEqual([
      [2, 0, 0.5],
      [2, 1, 0.5],
    ]);
    expect(await rows("scenario=item-0&order=descending")).toEqual([
      [1, 2, 0],
      [1, 1, 0],
      [1, 0, 1],
    ]);
  });

  it("finds trajectories by a text in any message, tool call or log, the newest step first", async () => {
    const search = async (query: string) => json(`/ui/api/runs/${run}/search?${query}`);
    const places = async (query: string) =>
      (await search(query)).items.map(({ split, step, line, index }: any) => [split, step, line, index].join(" "));
    // The first trajectory of each step has a tool, a sub-agent and a log line.
    const withTools = ["train 2 1 0", "train 1 1 0", "train 0 1 0"];
    for (const text of ["PEN cost", '{"item":"pen"}', "sub-agent question", '"price":3', "</script>"]) {
      expect([text, await places(`split=train&text=${encodeURIComponent(text)}`)]).toEqual([text, withTools]);
    }
    expect(await places("text=pen%20cost&split=train&step=1")).toEqual(["train 1 1 0"]);
    expect((await search("text=pen%20cost&limit=1")).isComplete).toBe(false);
    expect((await search("text=pen%20cost")).items[0].preview).toBe("What does the pen cost? [image_url]");
    expect(await search("text=no%20such%20text")).toEqual({ items: [], isComplete: true });
    expect((await search("text=")).error.param).toBe("text");
  });

  it("keeps notes and tags in the run directory, for the next service too", async () => {
    const path = join(root, "notes.jsonl");
    onTestFinished(() => rm(path, { force: true }));
    const headers = { "content-type": "application/json", origin: service.url };
    const change = (body: object) => json(`/ui/api/runs/${run}/notes`, { method: "PATCH", headers, body: JSON.stringify(body) });
    expect(await change({ tags: ["baseline", " rank 8 ", "baseline"] })).toMatchObject({ note: "", tags: ["baseline", "rank 8"] });
    await Promise.all([change({ note: "lower rate next" }), change({ tags: ["baseline"] })]);
    // A crash while writing leaves a torn line, which the next change removes.
    await appendFile(path, '{"time":"2026');
    expect(await change({ tags: ["final"] })).toMatchObject({ note: "lower rate next", tags: ["final"], problem: null });
    expect((await readFile(path, "utf8")).trimEnd().split("\n")).toHaveLength(4);
    const next = await startTestService({ runs: [root] });
    const answer = await fetch(`${next.url}/ui/api/runs`, { headers: { authorization: `Bearer ${next.apiKey}` } });
    expect(((await answer.json()) as object[])[0]).toMatchObject({ note: "lower rate next", tags: ["final"] });
    await next.close({ graceMs: 0 });

    for (const body of [{}, { tags: [""] }, { tags: ["x".repeat(51)] }, { title: "x" }]) {
      expect((await change(body)).error).toMatchObject({ code: 422, message: expect.any(String) as string });
    }
    await rm(path);
    await symlink("elsewhere", path);
    expect((await change({ note: "x" })).error.message).toContain("cannot be written");
  });

  it("compares runs and evaluations by paired differences with intervals", async () => {
    const more = await realpath(await mkdtemp(join(tmpdir(), "whetstone-dashboard-")));
    onTestFinished(() => rm(more, { recursive: true }));
    const dirs = [
      await generateRun(more, { name: "a", seed: 1, steps: 4, evaluateEvery: 2 }),
      await generateRun(more, { name: "b", seed: 2, steps: 6, evaluateEvery: 3 }),
    ] as const;
    await call("/ui/api/directories", { method: "POST", headers: bearer(), body: JSON.stringify({ paths: [more] }) });
    const listed = await json("/ui/api/runs");
    const [a, b] = dirs.map((path) => listed.find((each: any) => each.path === path).id);

    const expected = (await compare([await openRun(dirs[0]), await openRun(dirs[1])], { by: "scenario" })).differences[0]!;
    const { metric, runs } = await json(`/ui/api/compare?run=${a}&run=${b}`);
    expect([metric, ...runs.map(({ run: id, step }: any) => [id, step])]).toEqual(["reward", [a, 3], [b, 5]]);
    expect(runs[0].difference).toBeNull();
    const { mean, low, high, count } = expected;
    expect(runs[1].difference).toEqual({ mean, low, high, count });

    const steps = await json(`/ui/api/compare?run=${a}&run=${b}&by=step`);
    expect([steps.metric, steps.runs[1].difference.count]).toEqual(["reward/mean", 4]);
    const evaluations = await json(`/ui/api/compare?run=${a}@1&run=${a}@3`);
    expect(evaluations.runs.map(({ step }: any) => step)).toEqual([1, 3]);

    expect((await json(`/ui/api/compare?run=${a}&run=${run}`)).error.message).toContain("lacks");
    expect((await json(`/ui/api/compare?run=${a}@7&run=${b}`)).error.message).toContain("evaluations after 1, 3 steps");
    await rm(join(dirs[1], "trajectories/eval/000005.jsonl"));
    await symlink("/etc/hostname", join(dirs[1], "trajectories/eval/000005.jsonl"));
    expect((await json(`/ui/api/compare?run=${a}&run=${b}`)).error.message).toContain("symbolic link");
  });

  it("returns a trajectory with the values of sampler and trainer for each token", async () => {
    const answer = await json(`/ui/api/runs/${run}/steps/train/2/trajectories/1/0`);
    expect([answer.hasTrained, answer.group.id, answer.trajectory.reward]).toEqual([true, "item-0", 1]);
    const sampled = answer.trajectory.detail.histories[0].flatMap((item: any) => item.sampled ?? []);
    expect(sampled[1]).toMatchObject({ logprobs: [-0.1, -0.2, -0.3, -0.4], trained: [-0.07, -0.17, -0.27, -0.37], advantage: 0.5 });
    expect((await json(`/ui/api/runs/${run}/steps/train/2/trajectories/1/9`)).error.message).toMatch(/no trajectory 9 on line 1/);
  });

  it("pairs the answers of two steps to the same scenario", async () => {
    const { total, items } = await json(`/ui/api/runs/${run}/compare?a=0&b=1&split=train`);
    expect([total, items[0]]).toEqual([2, expect.objectContaining({ scenario: "item-0", difference: 0 })]);
    expect((await json(`/ui/api/runs/${run}/compare?a=0&b=2`)).error.message).toMatch(/no file trajectories\/eval\/000000\.jsonl/);
  });

  it("reports the size of the runs", async () => {
    const { runs, freeBytes, totalBytes } = await json("/ui/api/disk");
    expect(runs).toEqual([{ id: run, sizeBytes: expect.any(Number) as number }]);
    expect(runs[0].sizeBytes).toBeGreaterThan(1000);
    expect(totalBytes).toBeGreaterThan(freeBytes);
  });

  it.each([
    [`/ui/api/runs/..%2f..%2fetc`, 404, /There is no run/],
    [`/ui/api/runs/RUN/steps/train/..%2f0/groups`, 422, /step/],
    [`/ui/api/runs/RUN/steps/test/0/groups`, 422, /split/],
    [`/ui/api/runs/RUN/steps/train/77/groups`, 404, /no file trajectories\/train\/000077\.jsonl/],
    [`/ui/api/runs/RUN/steps/train/0/groups?limit=501`, 422, /limit/],
    [`/ui/api/runs/RUN/steps/train/0/trajectories?sort=size`, 422, /sort/],
    [`/ui/api/events?run=RUN@5`, 422, /position of the form/],
  ])("rejects %s", async (path, status, message) => {
    const answer = await call(path.replace("RUN", run), { headers: { cookie } });
    const body = (await answer.json()) as { error: { message: string } };
    expect([answer.status, body.error.message]).toEqual([status, expect.stringMatching(message) as string]);
  });
});

describe("a directory opened with the key", () => {
  const open = async (paths: unknown) => {
    const answer = await call("/ui/api/directories", { method: "POST", headers: bearer(), body: JSON.stringify({ paths }) });
    return { status: answer.status, body: (await answer.json()) as any };
  };

  it("is listed with the other runs; its damaged files are named, and links out of it are not followed", async () => {
    const other = await realpath(await writeRun({ trained: false }));
    try {
      expect(await open([other])).toEqual({ status: 200, body: { directories: [other] } });
      const found = (await json("/ui/api/runs")).find(({ path }: { path: string }) => path === other);
      await appendFile(join(other, "trajectories/train/000001.jsonl"), '{"trajectories":5}\n');
      await rm(join(other, "trajectories/train/000002.jsonl"));
      await symlink(join(root, "trajectories/train/000000.jsonl"), join(other, "trajectories/train/000002.jsonl"));
      await writeFile(join(other, "config.json"), "{");
      const [, damaged, linked] = await Promise.all([0, 1, 2].map((step) => json(`/ui/api/runs/${found.id}/steps/train/${step}/groups`)));
      expect(damaged.error).toMatchObject({
        error_code: "E_DATA",
        message: expect.stringContaining("000001.jsonl:3: at `trajectories`") as string,
      });
      expect(linked.error).toMatchObject({ error_code: "E_DATA", message: expect.stringContaining("symbolic link") as string });
      expect((await json(`/ui/api/runs/${found.id}`)).problem).toContain("config.json: expected JSON");
    } finally {
      await rm(other, { recursive: true });
    }
    expect((await json("/ui/api/runs")).map(({ path }: { path: string }) => path)).toEqual([root]);
  });

  it("has the same answer whether it exists, is a file, or is missing", async () => {
    expect(await open("x")).toMatchObject({ status: 422 });
    await mkdir(join(root, "empty"));
    for (const name of ["missing", "config.json", "empty"]) {
      expect(await open([join(root, name)])).toEqual({ status: 200, body: { directories: [join(root, name)] } });
    }
    expect((await json("/ui/api/runs")).map(({ path }: { path: string }) => path)).toEqual([root]);
  });
});
