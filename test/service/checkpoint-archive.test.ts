import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/index.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import {
  createModel,
  finishedEvents,
  MODELS,
  startRlJob,
  startTestService,
  temporaryDirectory,
  testBase,
  type TestService,
  UNKNOWN_ID,
  statePath,
} from "./support.ts";

async function library({ service }: TestService) {
  const client = await connect({ baseUrl: service.url, apiKey: service.apiKey });
  onTestFinished(() => client.close());
  return client;
}

test("returns a checkpoint by step or as the latest, with its lineage", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  const job = await startRlJob(service, id);
  await finishedEvents(service, job);
  const path = `${MODELS}/${id}/checkpoints`;
  const latest = await service.ok("GET", `${path}/latest`);
  expect(latest).toEqual(await service.ok("GET", `${path}/1`));
  expect(latest).toEqual((await service.ok("GET", path)).data[1]);
  expect(latest).toMatchObject({
    step: 1,
    pinned: false,
    created_at: expect.any(String),
    lineage: { base_model: "tiny", parent: "local/demo/reverse:step0", job_id: job, job_type: "rl" },
  });
  expect((await service.ok("GET", `${path}/0`)).lineage).toEqual({ base_model: "tiny", parent: null, job_id: null, job_type: null });
  expect(await service.call("GET", `${path}/2`)).toMatchObject({ status: 404, body: { error: { param: "step" } } });
  expect((await service.call("GET", `${path}/newest`)).status).toBe(422);
  expect((await service.call("GET", `${MODELS}/${UNKNOWN_ID}/checkpoints/1/archive`)).status).toBe(404);
});

test("downloads the trained weights with the files of the base model", async () => {
  const bases = await testBase();
  const service = await startTestService({ engine: { bases } });
  const { id } = await createModel(service);
  await finishedEvents(service, await startRlJob(service, id));
  const [base, target] = [bases[0]!.directory, join(await temporaryDirectory(), "out")];
  const client = await library(service);
  const [, checkpoint] = await client.checkpoints.list(id);
  await checkpoint!.download(target);
  const ofBase = (await readdir(base)).filter((name) => name !== "model.safetensors");
  expect((await readdir(target)).toSorted()).toEqual([...ofBase, "checkpoint.json", "model.safetensors"].toSorted());
  const state = statePath(service.service.dataDir, id, 1);
  expect(await readdir(state)).toContain("optimizer.safetensors");
  expect(await readFile(join(target, "model.safetensors"))).toEqual(await readFile(join(state, "model.safetensors")));
  expect(await readFile(join(target, "tokenizer.json"))).toEqual(await readFile(join(base, "tokenizer.json")));
  const facts = JSON.parse(await readFile(join(target, "checkpoint.json"), "utf8"));
  const { bytes: _, ...served } = await service.ok("GET", `${MODELS}/${id}/checkpoints/1`);
  expect(facts).toEqual({ model: "local/demo/reverse", ...served });
  // Nothing is left of a download in the data directory.
  expect(await readdir(join(service.service.dataDir, "tmp"))).toEqual([]);
});

test("creates a fresh adapter for its download and unloads it", async () => {
  const service = await startTestService();
  const { id } = await service.ok("POST", MODELS, { project: "demo", name: "adapted", base_model: "tiny", lora: { rank: 4 } });
  const target = join(await temporaryDirectory(), "out");
  await (await library(service)).checkpoints.download(id, "latest", target);
  // The scripted engine saves no adapters: the archive has its saved files.
  expect((await readdir(target)).toSorted()).toEqual(["checkpoint.json", "model.safetensors"]);
  expect(service.engine.calls.find((call) => call.verb === "createModel")?.detail).toMatchObject({ lora: { rank: 4 } });
  expect(service.engine.liveModels()).toEqual([]);
});

test("adds the base model of an adapter in a folder on request, and nothing to a full model", async () => {
  const bases = await testBase();
  const service = await startTestService({ engine: { bases } });
  const { id } = await service.ok("POST", MODELS, { project: "demo", name: "adapted", base_model: "tiny", lora: { rank: 4 } });
  const { id: full } = await createModel(service);
  const [target, whole] = [join(await temporaryDirectory(), "out"), join(await temporaryDirectory(), "whole")];
  const client = await library(service);
  await (await client.checkpoints.get(id, "latest")).download(target, { includeBase: true });
  expect((await readdir(target)).toSorted()).toEqual(["base", "checkpoint.json", "model.safetensors"]);
  const [base, included] = [bases[0]!.directory, join(target, "base")];
  expect((await readdir(included)).toSorted()).toEqual((await readdir(base)).toSorted());
  for (const name of await readdir(base)) expect(await readFile(join(included, name))).toEqual(await readFile(join(base, name)));
  await client.checkpoints.download(full, "latest", whole, { includeBase: true });
  expect(await readdir(whole)).not.toContain("base");
  expect((await service.call("GET", `${MODELS}/${id}/checkpoints/0/archive?include=all`)).status).toBe(422);
});

test("cleans up after a client that disconnects before the first byte of a download", async () => {
  const [gate, reached] = [deferred<void>(), deferred<void>()];
  const service = await startTestService({
    engine: {
      before: ({ verb }) => {
        if (verb !== "saveState") return;
        reached.resolve();
        return gate.promise;
      },
    },
  });
  const { id } = await service.ok("POST", MODELS, { project: "demo", name: "adapted", base_model: "tiny", lora: { rank: 4 } });
  const controller = new AbortController();
  const answer = service.call("GET", `${MODELS}/${id}/checkpoints/0/archive`, undefined, { signal: controller.signal });
  await reached.promise;
  controller.abort();
  await expect(answer).rejects.toThrow(/abort/u);
  gate.resolve();
  // The temporary files are removed.
  await expect.poll(() => service.requests.some(({ path }) => path.endsWith("/archive"))).toBe(true);
  await expect.poll(() => readdir(join(service.service.dataDir, "tmp"))).toEqual([]);
  expect(service.engine.liveModels()).toEqual([]);
  expect((await service.call("GET", `${MODELS}/${id}/checkpoints/0/archive`)).status).toBe(200);
});

test("answers HEAD with the headers of GET and removes temporary files", async () => {
  const service = await startTestService();
  const { id } = await service.ok("POST", MODELS, { project: "demo", name: "adapted", base_model: "tiny", lora: { rank: 4 } });
  const path = `${MODELS}/${id}/checkpoints/0/archive`;
  const headersOf = async (method: string) => {
    const { status, headers } = await service.call(method, path);
    expect(status).toBe(200);
    return [...headers].filter(([name]) => !["date", "connection", "keep-alive", "transfer-encoding", "x-request-id"].includes(name));
  };
  const headers = await headersOf("HEAD");
  expect(headers).toContainEqual(["content-type", "application/x-tar"]);
  expect(headers).toEqual(await headersOf("GET"));
  await expect.poll(() => readdir(join(service.service.dataDir, "tmp"))).toEqual([]);
});

test("completes a started download of a deleted checkpoint", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  for (let step = 0; step < 2; step++) await finishedEvents(service, await startRlJob(service, id));
  const path = `${MODELS}/${id}/checkpoints`;
  const expected = await readFile(join(statePath(service.service.dataDir, id, 1), "model.safetensors"));
  const response = await fetch(`${service.service.url}${path}/1/archive`, {
    headers: { authorization: `Bearer ${service.service.apiKey}` },
  });
  expect(response.headers.get("content-type")).toBe("application/x-tar");
  expect(await service.ok("DELETE", path, { steps: [1] })).toMatchObject({ deleted_count: 1 });
  expect(Buffer.from(await response.arrayBuffer()).includes(expected)).toBe(true);
});

test("answers 404 for a checkpoint that is deleted before its files are open", async () => {
  const [gate, reached] = [deferred<void>(), deferred<void>()];
  let isHeld = false;
  const service = await startTestService({
    engine: {
      before: ({ verb }) => {
        if (!isHeld || verb !== "describeBase") return;
        reached.resolve();
        return gate.promise;
      },
    },
  });
  const { id } = await createModel(service);
  for (let step = 0; step < 2; step++) await finishedEvents(service, await startRlJob(service, id));
  const path = `${MODELS}/${id}/checkpoints`;
  isHeld = true;
  const answer = service.call("GET", `${path}/1/archive`);
  await reached.promise;
  await service.ok("DELETE", path, { steps: [1] });
  gate.resolve();
  expect(await answer).toMatchObject({ status: 404, body: { error: { param: "step" } } });
});

test("leaves no files after a failed download", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  const directory = await temporaryDirectory();
  const client = await library(service);
  await expect(client.checkpoints.download(id, 7, join(directory, "out"))).rejects.toMatchObject({ code: "E_HTTP", status: 404 });
  await expect(client.checkpoints.download(id, 0, service.service.dataDir)).rejects.toMatchObject({ code: "E_ARGUMENT" });
  expect(await readdir(directory)).toEqual([]);
});

test("starts a model from a checkpoint's weights, and from its moments on request", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  for (let step = 0; step < 2; step++) await finishedEvents(service, await startRlJob(service, id));
  const state = (model: string, step: number) => statePath(service.service.dataDir, model, step);
  const client = await library(service);
  const fork = await client.models.create({ project: "demo", name: "fork", baseModel: "tiny", from: "local/demo/reverse:step1" });
  expect((await readdir(state(fork.id, 0))).toSorted()).toEqual(["model.safetensors", "state.json"]);
  expect(await readFile(join(state(fork.id, 0), "model.safetensors"))).toEqual(await readFile(join(state(id, 1), "model.safetensors")));
  const [start] = await fork.checkpoints();
  expect(start).toMatchObject({ step: 0, lineage: { parent: "local/demo/reverse:step1", jobId: null } });
  expect(start!.metrics["reward/mean"]).toBe(0.5);

  // The newest has its moments: with them the same job makes the same weights as on the model itself.
  const whole = await client.models.create({ project: "demo", name: "whole", baseModel: "tiny", from: id, keepOptimizer: true });
  await finishedEvents(service, await startRlJob(service, whole.id));
  await finishedEvents(service, await startRlJob(service, id));
  expect(await readFile(join(state(whole.id, 1), "model.safetensors"))).toEqual(await readFile(join(state(id, 3), "model.safetensors")));

  // A fork lives on by itself, and is sampled from.
  expect(await service.ok("DELETE", `${MODELS}/${id}`)).toMatchObject({ deleted_checkpoints: 4 });
  const chat = { model: "local/demo/fork", messages: [{ role: "user", content: "hi" }], max_tokens: 1 };
  expect((await service.ok("POST", "/v1/chat/completions", chat)).model).toBe("local/demo/fork:step0");
  const loaded = service.engine.calls.findLast((call) => call.verb === "loadPolicy")?.detail;
  expect(loaded).toMatchObject({ state: state(fork.id, 0) });
  await finishedEvents(service, await startRlJob(service, fork.id));
  expect((await fork.checkpoints()).at(-1)?.lineage).toMatchObject({ parent: "local/demo/fork:step0", jobType: "rl" });
});

test.each([
  ["another base", { base_model: "other", from: "local/demo/reverse" }, 422, "base_model"],
  ["an adapter where there is none", { from: "local/demo/reverse", lora: { rank: 2 } }, 422, "lora"],
  ["an unknown model", { from: "local/demo/nothing" }, 404, "from"],
  ["a step that is not there", { from: "local/demo/reverse:step9" }, 404, "from"],
  ["moments that were not kept", { from: "local/demo/reverse:step1", keep_optimizer: true }, 409, "keep_optimizer"],
  ["moments of the base", { keep_optimizer: true }, 422, "keep_optimizer"],
  ["an unknown artifact", { from: "artifact:///local/demo/nothing:v0" }, 404, "from"],
  ["an address elsewhere", { from: "https:///local/demo/nothing:v0" }, 422, "from"],
])("rejects a fork with %s and leaves no files", async (_, fields, status, param) => {
  const [tiny] = await testBase();
  const service = await startTestService({ engine: { bases: [tiny!, { ...tiny!, id: "other" }] } });
  const { id } = await createModel(service);
  for (let step = 0; step < 2; step++) await finishedEvents(service, await startRlJob(service, id));
  const answer = await service.call("POST", MODELS, { project: "demo", name: "fork", base_model: "tiny", ...fields });
  expect(answer).toMatchObject({ status, body: { error: { param } } });
  expect(await readdir(join(service.service.dataDir, "checkpoints"))).toEqual([id]);
});

test("creates forks of a fresh adapter, also indirect ones, from the same seed", async () => {
  const service = await startTestService();
  const body = { project: "demo", base_model: "tiny" };
  const source = await service.ok("POST", MODELS, { ...body, name: "adapted", lora: { rank: 4 } });
  const fork = await service.ok("POST", MODELS, { ...body, name: "fork", from: "local/demo/adapted:step0" });
  const next = await service.ok("POST", MODELS, { ...body, name: "next", from: fork.id });
  const other = await service.ok("POST", MODELS, { ...body, name: "other", lora: { rank: 4 } });
  for (const { id } of [source, fork, next, other]) await finishedEvents(service, await startRlJob(service, id));
  const made = service.engine.calls.filter(({ verb }) => verb === "createModel").map(({ detail }) => (detail as { seed: number }).seed);
  expect(made).toHaveLength(4);
  expect(new Set(made.slice(0, 3)).size).toBe(1);
  expect(made[3]).not.toBe(made[0]);
});

test("returns an existing model without copying files", async () => {
  const service = await startTestService();
  const { id } = await createModel(service);
  await finishedEvents(service, await startRlJob(service, id));
  const body = { project: "demo", name: "fork", base_model: "tiny", from: "local/demo/reverse", return_existing: true };
  const [one, two] = await Promise.all([service.ok("POST", MODELS, body), service.ok("POST", MODELS, body)]);
  expect(two).toEqual(one);
  expect(await service.ok("POST", MODELS, body)).toEqual(one);
  await expect
    .poll(() => readdir(join(service.service.dataDir, "checkpoints")).then((names) => new Set(names)))
    .toEqual(new Set([id, one.id]));
});

test("forks the named step while a job trains the model", async () => {
  const gate = deferred<void>();
  let isHeld = false;
  const service = await startTestService({ engine: { before: ({ verb }) => (isHeld && verb === "saveState" ? gate.promise : undefined) } });
  const { id } = await createModel(service);
  await finishedEvents(service, await startRlJob(service, id));
  isHeld = true;
  const job = await startRlJob(service, id);
  const fork = await service.ok("POST", MODELS, { project: "demo", name: "fork", base_model: "tiny", from: "local/demo/reverse" });
  gate.resolve();
  await finishedEvents(service, job);
  expect((await service.ok("GET", `${MODELS}/${fork.id}/checkpoints/0`)).lineage.parent).toBe("local/demo/reverse:step1");
});
