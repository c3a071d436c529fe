/** Ways in which one entity could learn about another one, besides the routes of `permissions.test.ts`. */
import { expect, onTestFinished, test } from "vitest";
import {
  ARTIFACTS,
  chatLines,
  MODELS,
  SFT_JOBS,
  startTestService,
  temporaryDirectory,
  UNKNOWN_ID,
  uploadArtifact,
  type TestService,
} from "../support.ts";
import { startService } from "../../../src/service/index.ts";
import { createKey, KEYS } from "./resources.ts";

const CHAT = "/v1/chat/completions";
const SESSIONS = "/v1/preview/sessions";
const ask = (model: string, more: object = {}) => ({ model, messages: [{ role: "user", content: "hello" }], max_tokens: 2, ...more });

/** A service with keys of two entities. */
async function shared() {
  const service = await startTestService();
  const [acme, rival] = await Promise.all(["acme", "rival"].map(async (entity) => (await createKey(service, { entity })).key));
  return { service, acme: acme!, rival: rival! };
}

const newModel = ({ ok }: TestService, key: string, name = "m"): Promise<{ id: string }> =>
  ok("POST", MODELS, { project: "demo", name, base_model: "tiny" }, { key });

test("a request that names another entity answers 403, whether the row exists or not", async () => {
  const { service, acme, rival } = await shared();
  const { call } = service;
  await newModel(service, rival, "their-model");
  const own = await newModel(service, acme);
  await uploadArtifact(
    { ...service, ok: (method, path, body) => service.ok(method, path, body, { key: rival }) },
    { "train.jsonl": chatLines(2) },
    "dataset",
  );
  const requests = (name: string): [method: string, path: string, body?: unknown][] => [
    ["POST", CHAT, ask(`rival/demo/${name}`)],
    ["POST", "/tokenize", { model: `rival/demo/${name}:step0`, prompt: "a" }],
    ["POST", SESSIONS, { model: `rival/demo/${name}` }],
    ["POST", MODELS, { entity: "rival", project: "demo", name, base_model: "tiny" }],
    ["POST", MODELS, { entity: "rival", project: "demo", name, base_model: "tiny", return_existing: true }],
    ["POST", MODELS, { project: "demo", name: "copy", base_model: "tiny", from: `rival/demo/${name}` }],
    ["POST", MODELS, { project: "demo", name: "copy", base_model: "tiny", from: `artifact:///rival/demo/${name}:v0` }],
    ["GET", `${MODELS}?entity=rival&name=${name}`],
    ["POST", ARTIFACTS, { entity: "rival", project: "demo", name }],
    ["GET", `${ARTIFACTS}?entity=rival&name=${name}`],
    ["POST", SFT_JOBS, { model_id: own.id, training_data_url: `artifact:///rival/demo/${name}:v0` }],
    ["POST", "/v1/fine_tuning/jobs", { model: `rival/demo/${name}`, training_file: "file-1" }],
  ];
  const answers = async (name: string) => {
    const all = [];
    for (const [method, path, body] of requests(name)) {
      const { status, body: answer } = await call(method, path, body, { key: acme });
      all.push([path.replaceAll(name, "…"), status, JSON.stringify(answer).replaceAll(name, "…")]);
    }
    return all;
  };
  const missing = await answers("absent");
  // The file of the fine-tuning job is looked up first.
  expect(missing.map(([, status]) => status)).toEqual([...Array.from({ length: 11 }, () => 403), 404]);
  for (const name of ["their-model", "dataset"]) expect(await answers(name)).toEqual(missing);
});

test("the same name and the same idempotency key belong to each entity", async () => {
  const { service, acme, rival } = await shared();
  const { call, ok } = service;
  const create = (key: string, name: string) =>
    call("POST", MODELS, { project: "demo", name, base_model: "tiny" }, { key, headers: { "idempotency-key": "retry-1" } });
  const [one, two, three] = [await create(acme, "m"), await create(rival, "m"), await create(service.service.apiKey, "n")];
  expect([one.status, two.status, three.status]).toEqual([200, 200, 200]);
  expect([one.body.entity, two.body.entity, three.body.entity]).toEqual(["acme", "rival", "local"]);
  expect((await create(acme, "m")).body).toEqual(one.body);
  expect((await create(acme, "other")).status).toBe(409);
  // Sent at the same time, too.
  const both = await Promise.all(
    [acme, rival].map((key) => ok("POST", ARTIFACTS, { project: "demo", name: "d" }, { key, headers: { "idempotency-key": "k" } })),
  );
  expect(both.map(({ entity, version }) => [entity, version])).toEqual([
    ["acme", 0],
    ["rival", 0],
  ]);
});

test("cursors of another entity are no cursors, and filters by its ids match nothing", async () => {
  const { service, acme, rival } = await shared();
  const { call } = service;
  const { id } = await newModel(service, rival);
  const version = await service.ok("POST", ARTIFACTS, { project: "demo", name: "d" }, { key: rival });
  const session = await service.ok("POST", SESSIONS, { model: id }, { key: rival });
  for (const [path, cursor] of [
    [MODELS, id],
    [ARTIFACTS, version.id],
    [SESSIONS, session.id],
  ] as const) {
    const at = async (after: string) => {
      const { status, body } = await call("GET", `${path}?after=${after}`, undefined, { key: acme });
      return [path, status, JSON.stringify(body).replaceAll(after, "…")];
    };
    expect(await at(cursor)).toEqual(await at(UNKNOWN_ID));
  }
  const jobs = await call("GET", `/v1/preview/training-jobs?model_id=${id}`, undefined, { key: acme });
  expect(jobs).toMatchObject({ status: 200, body: { data: [], has_more: false } });
});

test("prompts of an entity have a salt of its own in the prefix cache, which no request can choose", async () => {
  const { service, acme, rival } = await shared();
  const { ok, engine } = service;
  const local = (await createKey(service, {})).key;
  const saltOf = async (key: string, more: object = {}) => {
    await ok("POST", CHAT, ask("tiny", more), { key });
    const { detail } = engine.calls.findLast(({ verb }) => verb === "sample")!;
    return (detail as { params: { cacheSalt?: string } }).params.cacheSalt;
  };
  const first = await saltOf(acme);
  expect(first).toMatch(/^[\w-]{43}$/u);
  expect(await saltOf(acme)).toBe(first);
  const others = [await saltOf(rival), await saltOf(acme, { cache_salt: "mine" }), await saltOf(rival, { cache_salt: first })];
  expect(new Set([first, ...others]).size).toBe(4);
  // The key of the service, and keys of the entity that it uses, have the salts of their requests.
  for (const key of [service.service.apiKey, local])
    expect([await saltOf(key), await saltOf(key, { cache_salt: "mine" })]).toEqual([undefined, "mine"]);
  expect(await saltOf(local, { cache_salt: first })).toBe(first);
  const session = await ok("POST", SESSIONS, { model: "tiny" }, { key: acme });
  expect(await saltOf(session.key)).toBe(first);
});

test("no entity finds the prompt of another one in the prefix cache of the embedded engine", async () => {
  const running = await startService({ dataDir: await temporaryDirectory(), hub: null, limits: { chat: { reportCachedTokens: true } } });
  onTestFinished(() => running.close({ graceMs: 0 }));
  const send = async (path: string, key: string, body: object) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const response = await fetch(running.url + path, { method: "POST", headers, body: JSON.stringify(body) });
    expect(response.status).toBe(200);
    return response.json() as Promise<any>;
  };
  const prompt = ask("whetstone-tiny", { messages: [{ role: "user", content: "a secret of the entity acme ".repeat(8) }] });
  const cachedFor = async (key: string): Promise<number> => (await send(CHAT, key, prompt)).usage.prompt_tokens_details?.cached_tokens ?? 0;
  const keys = await Promise.all(["acme", "rival"].map(async (entity) => (await send(KEYS, running.apiKey, { name: "a", entity })).key));
  for (const key of [...keys, running.apiKey]) expect(await cachedFor(key)).toBe(0);
  for (const key of [...keys, running.apiKey]) expect(await cachedFor(key)).toBeGreaterThan(16);
});

test("a session belongs to the entity of its creator, and an entity's key sends requests of its sessions by path", async () => {
  const { service, acme, rival } = await shared();
  const { call, ok } = service;
  const { id: model } = await newModel(service, acme);
  const session = await ok("POST", SESSIONS, { model }, { key: acme });
  const byPath = async (key: string) => (await call("POST", `/sessions/${session.id}${CHAT}`, ask("any"), { key })).status;
  const reader = (await createKey(service, { entity: "acme", scopes: ["read"] })).key;
  expect([await byPath(acme), await byPath(session.key), await byPath(service.service.apiKey)]).toEqual([200, 200, 200]);
  expect([await byPath(rival), await byPath(reader)]).toEqual([404, 404]);
  // An administrator creates a session for the owner of its model.
  const made = await ok("POST", SESSIONS, { model: "acme/demo/m" });
  const listed = (await ok("GET", SESSIONS, undefined, { key: acme })).data as { id: string }[];
  expect(new Set(listed.map(({ id }) => id))).toEqual(new Set([session.id, made.id]));
  expect((await call("POST", CHAT, ask("any"), { key: made.key })).status).toBe(200);
  expect((await ok("GET", SESSIONS, undefined, { key: rival })).data).toEqual([]);
});

test("stored responses belong to the entity, outlive a rotation of the key, and are not found by the key of the service", async () => {
  const { service, rival } = await shared();
  const { call, ok } = service;
  const { id, key } = await createKey(service, { entity: "acme" });
  const response = await ok("POST", "/v1/responses", { model: "tiny", input: "hello", max_output_tokens: 2 }, { key });
  const rotated = (await ok("POST", `${KEYS}/${id}/rotate`, {})).key;
  const other = (await createKey(service, { entity: "acme" })).key;
  const statuses = [];
  for (const each of [rotated, other, rival, service.service.apiKey])
    statuses.push((await call("GET", `/v1/responses/${response.id}`, undefined, { key: each })).status);
  expect(statuses).toEqual([200, 200, 404, 404]);
});

test("an entity sees base models, and no identifiers are added by its keys", async () => {
  const { service, acme, rival } = await shared();
  const { call, ok } = service;
  await newModel(service, rival, "secret");
  expect((await ok("GET", "/v1/models", undefined, { key: acme })).data.map(({ id }: { id: string }) => id)).toEqual(["tiny"]);
  expect(await call("POST", "/v1/preview/base-models", { source: "tiny", id: "alias" }, { key: acme })).toMatchObject({
    status: 403,
    body: { error: { param: "id" } },
  });
  for (const path of ["/health", "/version", "/openapi.json", "/v1/preview/base-models"]) {
    const { body } = await call("GET", path, undefined, { key: acme });
    expect(JSON.stringify(body)).not.toContain('secret"');
    expect(JSON.stringify(body)).not.toContain("rival");
  }
  const missing = await call("POST", CHAT, ask(UNKNOWN_ID), { key: acme });
  expect(JSON.stringify(missing.body)).not.toContain("rival");
});
