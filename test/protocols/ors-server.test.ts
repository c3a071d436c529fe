import { request } from "undici";
import { afterEach, describe, expect, it } from "vitest";
import { defineEnvironment, evaluate } from "../../src/library/environment/index.ts";
import { defineToolEnvironment, orsEnvironment, serveOrs } from "../../src/library/protocols/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { exchanges } from "./replay-ors.ts";
import { released, sums, type Sum } from "./sums.ts";

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

async function served(...args: Parameters<typeof serveOrs<Sum>>) {
  const server = await serveOrs(...args);
  open.push(server);
  return server;
}

/** Client of one session. */
async function client(url: string) {
  const created = await (await fetch(`${url}/create_session`, { method: "POST" })).text();
  const id = /data: (\S+)/u.exec(created)?.[1] ?? "";
  const call = async (method: string, path: string, body?: unknown) => {
    const headers = { "content-type": "application/json", "x-session-id": id };
    const response = await fetch(url + path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    return { status: response.status, text: await response.text() };
  };
  return call;
}

/** Returns the result in an event stream. */
const resultOf = (text: string) =>
  JSON.parse([...text.matchAll(/event: (?:chunk|end)\r\ndata: (.*)\r\n/gu)].map(([, data]) => data).join("")) as Record<string, unknown>;

const byLength = {
  name: "length",
  weight: 2,
  scoreGroup: ({ trajectories }: { readonly trajectories: readonly { readonly lastText: string }[] }) =>
    trajectories.map((each) => each.lastText.length),
};

/** Environment with a group reward. */
const grouped = () => {
  const { name, scenarios, start, rewards } = sums();
  return defineToolEnvironment({ name, scenarios, start, rewards, groupRewards: [byLength] });
};

describe("an environment served by the Open Reward Standard", () => {
  it("gives its tasks, prompt, tools, reward and group reward to our client", async () => {
    const { url } = await served(grouped());
    const environment = await orsEnvironment({ baseUrl: url, groupWeight: 0.25 });
    expect(environment.scenarios.train).toHaveLength(2);
    const policy = createScriptedPolicy(({ messages }) => (messages.length > 1 ? { text: "13" } : { calls: [["add", '{"x":6,"y":7}']] }));
    const { groups } = await evaluate(environment, policy, { samples: 2, progress: false });
    expect(
      groups[0]?.trajectories.map(({ reward, metrics }) => [reward, metrics["reward/episode"], metrics["reward/score_group"]]),
    ).toEqual([
      [1.9, 0.9, 4],
      [1.9, 0.9, 4],
    ]);
    expect(policy.requests[0]?.messages).toEqual([{ role: "user", content: "What is 6 + 7?" }]);
    expect(policy.requests[0]?.tools?.map((tool) => tool.function.name)).toEqual(["add"]);
  });

  it("answers the recorded requests with the status and form of openreward", async () => {
    const { url } = await served(grouped());
    const call = await client(url);
    // The recorded environment has other tools and splits; its answers depend on them.
    const skipped = new Set(["fail", "answer"]);
    for (const { method, path, body, status, text } of exchanges) {
      const { name, split, input } = (body ?? {}) as { readonly name?: string; readonly split?: string; readonly input?: object };
      if (
        path === "/create_session" ||
        skipped.has(name ?? "") ||
        split === "held-out" ||
        (name === "add" && text.includes("episode_finished"))
      )
        continue;
      const sent = name === "add" ? { name, input: { x: 2, y: 3 } } : body;
      const got = await call(method, path, sent === null ? undefined : sent);
      expect([path, got.status]).toEqual([path, status]);
      if (status !== 200) expect(JSON.parse(got.text)).toEqual({ detail: expect.any(String) as unknown });
      else if (text.startsWith("event")) {
        const [ours, theirs] = [resultOf(got.text), resultOf(text)];
        if (input !== undefined && "a" in input && theirs["ok"] === false) continue;
        expect(Object.keys(ours).toSorted()).toEqual(Object.keys(theirs).toSorted());
        expect(ours["reason"]).toBe(theirs["reason"]);
      } else if (!path.endsWith("ors")) {
        const keys = (value: string) => Object.keys(JSON.parse(value) as object).toSorted();
        if (!Array.isArray(JSON.parse(text))) expect([path, keys(got.text)]).toEqual([path, keys(text)]);
      }
    }
  });

  it("scores the answer, refuses calls after the end, and repeats the result of a resumed call", async () => {
    const { url } = await served(sums());
    const call = await client(url);
    await call("POST", "/create", { task_spec: { id: "train/1", split: "train", index: 1 } });
    const added = await call("POST", "/call", { name: "add", input: { x: 4, y: 5 } });
    const id = /data: (\S+)/u.exec(added.text)?.[1];
    expect(resultOf((await call("POST", "/call", { name: "add", input: {}, task_id: id })).text)).toEqual(resultOf(added.text));
    expect(JSON.stringify(resultOf(added.text))).toContain("9 after 1");
    expect((await call("POST", "/call", { name: "add", input: {}, task_id: "other" })).text).toContain(
      "event: error\r\ndata: unknown task_id",
    );
    expect(resultOf((await call("POST", "/call", { name: "submit", input: { answer: 9 } })).text)).toMatchObject({
      reason: "input_validation",
    });
    const submitted = resultOf((await call("POST", "/call", { name: "submit", input: { answer: "9" } })).text);
    expect(submitted).toMatchObject({ ok: true, output: { reward: 0.9, finished: true } });
    expect(resultOf((await call("POST", "/call", { name: "add", input: { x: 1, y: 1 } })).text)).toMatchObject({
      reason: "episode_finished",
    });
  });

  it("rejects requests of web pages: an origin, or the name of another machine", async () => {
    const { url } = await served(sums());
    const statusOf = async (headers: Record<string, string>) => {
      const { statusCode, body } = await request(`${url}/list_environments`, { headers });
      return [statusCode, await body.text()];
    };
    const { port } = new URL(url);
    for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, "localhost", `[::1]:${port}`])
      expect((await statusOf({ host }))[0]).toBe(200);
    for (const host of ["attacker.example", `attacker.example:${port}`, "127.0.0.1.attacker.example", `localhost.example:${port}`])
      expect(await statusOf({ host })).toEqual([403, expect.stringContaining("Expected the header `Host`")]);
    for (const origin of ["https://example.com", "null", url])
      expect(await statusOf({ origin })).toEqual([403, expect.stringContaining("Origin")]);
  });

  it("rejects sessions over the limit, invalid tasks and unknown names", async () => {
    const { url } = await served(sums(), { maxSessions: 1 });
    const [first, second] = [await client(url), await client(url)];
    expect((await second("GET", "/prompt")).status).toBe(404);
    expect((await first("POST", "/create", { split: "train", index: 2 })).text).toContain("Invalid index");
    expect((await first("POST", "/create", { split: "train" })).status).toBe(422);
    expect((await first("POST", "/create", { split: "train", index: 0, toolset_name: "shell" })).text).toContain("unknown toolset 'shell'");
    expect((await first("POST", "/create", { split: "train", index: 0, env_name: "chess" })).status).toBe(404);
    expect((await first("POST", "/create", { split: "train", index: 0 })).status).toBe(200);
    expect((await first("POST", "/create", { split: "train", index: 0 })).text).toContain("already exists");
    expect((await second("POST", "/create", { split: "train", index: 0 })).status).toBe(429);
    expect((await first("POST", "/score_group", { candidates: [] })).status).toBe(404);
    expect((await first("POST", "/call", { name: "add" })).status).toBe(422);
    expect((await fetch(`${url}/prompt`)).status).toBe(400);
  });

  it("releases episodes at their deletion, after the idle timeout, and when the server is closed", async () => {
    const server = await serveOrs(sums(), { idleTimeoutMs: 30 });
    const before = released.count;
    const create = async () => {
      const call = await client(server.url);
      await call("POST", "/create", { split: "train", index: 0 });
      return call;
    };
    await (
      await create()
    )("POST", "/delete", {});
    expect(released.count).toBe(before + 1);
    await create();
    await expect.poll(() => released.count).toBe(before + 2);
    await create();
    await server.close();
    expect(released.count).toBe(before + 3);
  });
});

describe("serveOrs", () => {
  it("rejects environments that cannot be served, and invalid options", async () => {
    const own = defineEnvironment({
      name: "chess",
      scenarios: { train: [1], eval: [] },
      rollout: () => Promise.reject(new Error("unused")),
    });
    await expect(serveOrs(own)).rejects.toThrow("Environment `chess` cannot be served");
    const { name, start, rewards } = sums();
    const unlimited = defineToolEnvironment({ name, start, rewards, scenarios: { train: (a: number) => ({ a, b: 1 }), eval: [] } });
    await expect(serveOrs(unlimited)).rejects.toMatchObject({ code: "E_CONFIG", param: "trainTasks" });
    const { url } = await served(unlimited, { trainTasks: 5 });
    expect((await orsEnvironment({ baseUrl: url })).scenarios.train).toHaveLength(5);
    await expect(serveOrs(sums(), { idleTimeoutMs: 0 })).rejects.toMatchObject({ code: "E_CONFIG", param: "idleTimeoutMs" });
    await expect(serveOrs(sums(), { maxSessions: 0 })).rejects.toMatchObject({ code: "E_CONFIG", param: "maxSessions" });
  });
});
