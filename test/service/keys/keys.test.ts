import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { KyselyPlugin } from "kysely";
import { expect, onTestFinished, test } from "vitest";
import { ApiKeys } from "../../../src/service/keys/api-keys.ts";
import { openTestStore, onSqlite } from "../../support/postgres.ts";
import { createModel, MODELS, restartable, RL_JOBS, rlBody, startTestService, temporaryDirectory, UNKNOWN_ID } from "../support.ts";
import { createKey, KEYS } from "./resources.ts";

const CHAT = "/v1/chat/completions";
const hello = (model: string) => ({ model, messages: [{ role: "user", content: "hello" }], max_tokens: 2 });

test("a key is shown once and stored as a hash; no list, log or file has its secret", async () => {
  onSqlite();
  const service = await startTestService();
  const { call, ok, log, service: running } = service;
  const created = await ok("POST", KEYS, { name: "agents", entity: "acme", scopes: ["sample"], expires_in_seconds: 60 });
  expect(created).toMatchObject({
    name: "agents",
    entity: "acme",
    scopes: ["sample"],
    model_id: null,
    status: "active",
    last_used_at: null,
  });
  expect(created.key).toMatch(/^wsk_[\w-]{43}$/u);
  expect(Date.parse(created.expires_at) - Date.parse(created.created_at)).toBe(60_000);
  const { key, ...known } = created;
  expect((await ok("GET", KEYS)).data).toEqual([known]);
  await call("GET", `/nothing/${key}`, undefined, { key });
  const files = ["whetstone.db", "whetstone.db-wal"].map((name) => readFile(join(running.dataDir, name), "latin1").catch(() => ""));
  const stored = (await Promise.all(files)).join("");
  expect(stored).toContain(
    createHash("sha256")
      .update(key as string)
      .digest("hex"),
  );
  for (const text of [stored, JSON.stringify(log), JSON.stringify(service.requests)]) expect(text).not.toContain(key);
});

test("an expired, a revoked and a replaced key answer 401 with the reason", async () => {
  const service = await startTestService();
  const { call, ok } = service;
  const status = async (key: string) => {
    const { status: code, body } = await call("GET", MODELS, undefined, { key });
    return code === 200 ? code : [code, body.error.error_code, body.error.message];
  };
  const short = await createKey(service, { name: "short", expires_in_seconds: 1 });
  await expect.poll(() => status(short.key)).toEqual([401, "E_UNAUTHORIZED", expect.stringMatching(/'short' expired at 20/u)]);
  const { id, key } = await createKey(service, { name: "first" });
  expect(await status(key)).toBe(200);
  const second = await ok("POST", `${KEYS}/${id}/rotate`, { grace_seconds: 60 });
  expect([second.id, await status(key), await status(second.key)]).toEqual([id, 200, 200]);
  const third = await ok("POST", `${KEYS}/${id}/rotate`, {});
  expect(await status(key)).toEqual([401, "E_UNAUTHORIZED", "The API key is not the one of this service"]);
  expect(await status(second.key)).toEqual([401, "E_UNAUTHORIZED", expect.stringContaining("has another secret since its rotation")]);
  expect(await status(third.key)).toBe(200);
  expect(await ok("DELETE", `${KEYS}/${id}`)).toMatchObject({ id, status: "revoked" });
  expect(await ok("DELETE", `${KEYS}/${id}`)).toMatchObject({ id, status: "revoked" });
  expect(await status(third.key)).toEqual([401, "E_UNAUTHORIZED", expect.stringContaining("'first' was revoked at 20")]);
  for (const over of [id, short.id])
    expect(await call("POST", `${KEYS}/${over}/rotate`, {})).toMatchObject({ status: 409, body: { error: { error_code: "E_CONFLICT" } } });
  expect((await ok("GET", KEYS)).data.map((each: { status: string }) => each.status)).toEqual(["revoked", "expired"]);
});

test("keys outlive a restart, and the time of their last use is recorded", async () => {
  const { start } = await restartable();
  const first = await start();
  const { key, id } = await createKey(first, { entity: "acme" });
  await first.ok("GET", MODELS, undefined, { key });
  await first.service.close();
  const second = await start();
  await second.ok("GET", MODELS, undefined, { key });
  const [known] = (await second.ok("GET", KEYS)).data;
  expect(known).toMatchObject({ id, last_used_at: expect.stringMatching(/^20/u) });
});

test("a known key is authenticated without a query, until a change", async () => {
  let queries = 0;
  const counting: KyselyPlugin = {
    transformQuery({ node }) {
      queries++;
      return node;
    },
    transformResult: ({ result }) => Promise.resolve(result),
  };
  const opened = await openTestStore(await temporaryDirectory());
  onTestFinished(() => opened.destroy());
  const store = opened.withPlugin(counting);
  const keys = new ApiKeys(store);
  const { row, secret } = await keys.create(opened, { name: "a" });
  queries = 0;
  const principal = await keys.authenticate(secret);
  expect(principal).toMatchObject({ visibility: { entity: "local", modelId: null }, scopes: ["train", "sample", "read"] });
  for (let index = 0; index < 10; index++) expect(await keys.authenticate(secret)).toEqual(principal);
  expect(queries).toBe(1);
  await keys.revoke(store, row.id);
  expect(await keys.authenticate(secret)).toMatchObject({ status: 401 });
  for (const other of ["", "wsk_", `${secret}x`, "wsk_".padEnd(47, "a")]) expect(await keys.authenticate(other)).toBeNull();
});

test("an administrator of an entity manages the keys of this entity alone", async () => {
  const service = await startTestService();
  const { call, ok } = service;
  const foreign = await createKey(service, { entity: "rival" });
  const all = await createKey(service, { entity: null, scopes: ["admin"] });
  const { key } = await createKey(service, { entity: "acme", scopes: ["admin"] });
  const own = await ok("POST", KEYS, { name: "own" }, { key });
  expect(own).toMatchObject({ entity: "acme", scopes: ["train", "sample", "read"] });
  for (const entity of ["rival", "local", null])
    expect(await call("POST", KEYS, { name: "a", entity, scopes: ["admin"] }, { key })).toMatchObject({
      status: 403,
      body: { error: { param: "entity" } },
    });
  expect((await ok("GET", KEYS, undefined, { key })).data.map(({ entity }: { entity: string }) => entity)).toEqual(["acme", "acme"]);
  expect(await call("GET", `${KEYS}?entity=rival`, undefined, { key })).toMatchObject({ status: 403 });
  const atForeign = await call("GET", `${KEYS}?after=${foreign.id}`, undefined, { key });
  const atMissing = await call("GET", `${KEYS}?after=${UNKNOWN_ID}`, undefined, { key });
  expect(JSON.stringify(atForeign.body).replaceAll(foreign.id, "…")).toBe(JSON.stringify(atMissing.body).replaceAll(UNKNOWN_ID, "…"));
  // The administrator of all entities sees all keys, also the one that belongs to none.
  expect((await ok("GET", KEYS, undefined, { key: all.key })).data).toHaveLength(4);
  expect((await ok("GET", `${KEYS}?entity=acme`, undefined, { key: all.key })).data).toHaveLength(2);
  expect(await call("POST", KEYS, { name: "a", entity: null, scopes: ["read"] })).toMatchObject({
    status: 422,
    body: { error: { param: "scopes" } },
  });
});

test("the dashboard is for administrators of all entities", async () => {
  const service = await startTestService();
  const [bound, all, plain] = await Promise.all([
    createKey(service, { entity: "acme", scopes: ["admin"] }),
    createKey(service, { entity: null, scopes: ["admin"] }),
    createKey(service, {}),
  ]);
  for (const path of ["/ui/api/runs", "/ui/api/session"]) {
    const status = async (key: string) => (await service.call("GET", path, undefined, { key })).status;
    expect([path, await status(bound.key), await status(plain.key), await status(all.key)]).toEqual([path, 403, 403, 200]);
  }
  expect((await service.call("POST", "/ui/api/links", undefined, { key: bound.key })).status).toBe(403);
  expect((await service.call("GET", "/ui/", undefined, { key: bound.key })).status).toBe(200);
});

test("a key of one model finds this model alone", async () => {
  const service = await startTestService();
  const { call, ok } = service;
  const [own, other] = [await createModel(service, "own"), await createModel(service, "other")];
  expect(await call("POST", KEYS, { name: "a", model_id: UNKNOWN_ID })).toMatchObject({
    status: 404,
    body: { error: { param: "model_id" } },
  });
  expect(await call("POST", KEYS, { name: "a", entity: "acme", model_id: own.id })).toMatchObject({ status: 422 });
  expect(await call("POST", KEYS, { name: "a", scopes: ["admin"], model_id: own.id })).toMatchObject({ status: 422 });
  const { key } = await createKey(service, { model_id: own.id });
  const as = (method: string, path: string, body?: unknown) => call(method, path, body, { key });
  expect((await as("GET", MODELS)).body.data.map(({ id }: { id: string }) => id)).toEqual([own.id]);
  expect((await as("GET", "/v1/models")).body.data.map(({ id }: { id: string }) => id)).toEqual(["local/demo/own"]);
  expect((await as("POST", CHAT, hello(own.id))).status).toBe(200);
  for (const [method, path, body] of [
    ["POST", CHAT, hello(other.id)],
    ["POST", CHAT, hello("local/demo/other")],
    ["DELETE", `${MODELS}/${other.id}`],
    ["GET", `${MODELS}/${other.id}/checkpoints`],
    ["POST", RL_JOBS, rlBody(other.id)],
  ] as const)
    expect([path, (await as(method, path, body)).status]).toEqual([path, 404]);
  expect(await as("POST", CHAT, hello("tiny"))).toMatchObject({ status: 403, body: { error: { param: "model" } } });
  expect(await as("POST", MODELS, { project: "demo", name: "third", base_model: "tiny" })).toMatchObject({ status: 403 });
  const job = await ok("POST", RL_JOBS, rlBody(other.id));
  const ownJob = (await as("POST", RL_JOBS, rlBody(own.id))).body;
  expect((await as("GET", RL_JOBS)).body.data.map(({ id }: { id: string }) => id)).toEqual([ownJob.id]);
  expect((await as("GET", `${RL_JOBS}/${job.id}`)).status).toBe(404);
  const session = await as("POST", "/v1/preview/sessions", { model: own.id });
  expect(session.status).toBe(200);
  await ok("POST", "/v1/preview/sessions", { model: other.id });
  expect((await as("GET", "/v1/preview/sessions")).body.data.map(({ id }: { id: string }) => id)).toEqual([session.body.id]);
});

test("rejects invalid keys with the field", async () => {
  const { call } = await startTestService();
  for (const [body, field] of [
    [{}, "name"],
    [{ name: "" }, "name"],
    [{ name: "a", scopes: [] }, "scopes"],
    [{ name: "a", scopes: ["read", "read"] }, "scopes"],
    [{ name: "a", scopes: ["write"] }, "scopes"],
    [{ name: "a", entity: "no/entity" }, "entity"],
    [{ name: "a", expires_in_seconds: 0 }, "expires_in_seconds"],
    [{ name: "a", secret: "wsk_mine" }, "secret"],
  ] as const) {
    const { status, body: answer } = await call("POST", KEYS, body);
    expect([body, status, answer.error.message]).toEqual([body, 422, expect.stringContaining(field)]);
  }
  expect(await call("POST", `${KEYS}/${UNKNOWN_ID}/rotate`, {})).toMatchObject({ status: 404, body: { error: { param: "key_id" } } });
});
