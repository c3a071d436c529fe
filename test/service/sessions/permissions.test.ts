import { join } from "node:path";
import { expect, test } from "vitest";
import { openConnection } from "../../../src/service/store/connection.ts";
import type { RouteSpec } from "../../../src/service/openapi/route.ts";
import { onSqlite } from "../../support/postgres.ts";
import { startTestService, UNKNOWN_ID } from "../support.ts";
import { ask, CHAT, createSession, SESSIONS, user } from "./support.ts";

type Operation = Pick<RouteSpec, "method" | "path"> & { readonly isPublic: boolean };

test("the key of a session is rejected on every route but sampling and its own score, and for every other session", async () => {
  const service = await startTestService();
  const { call, ok } = service;
  const [own, other] = [await createSession(service), await createSession(service)];
  const { paths } = await ok("GET", "/openapi.json", undefined, { key: null });
  const operations = Object.entries(paths as Record<string, Record<string, { security?: unknown[] }>>).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { security }]): Operation => {
      return { method: method.toUpperCase() as Operation["method"], path, isPublic: security?.length === 0 };
    }),
  );
  const keyed = operations.filter(({ isPublic }) => !isPublic);
  expect(keyed.length).toBeGreaterThan(30);
  const permitted = new Set([
    ...[CHAT, `${CHAT}/`, "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/v1/completions", "/inference/v1/generate"].map(
      (path) => `POST ${path}`,
    ),
    ...["GET /v1/responses/{response_id}", "GET /v1/responses/{response_id}/input_items", "DELETE /v1/responses/{response_id}"],
    "POST /tokenize",
    "POST /detokenize",
    ...["reward", "metrics", "finish"].map((verb) => `POST ${SESSIONS}/{session_id}/${verb}`),
  ]);
  const headers = [{ authorization: `Bearer ${own.key}` }, { "x-api-key": own.key }];
  for (const { method, path } of keyed) {
    const isOwn = path.includes("{session_id}");
    const sessionIds = isOwn ? [own.id, other.id, UNKNOWN_ID] : [""];
    for (const id of sessionIds) {
      const at = path.replace("{session_id}", id).replaceAll(/\{\w+\}/gu, UNKNOWN_ID);
      for (const header of headers) {
        const { status, body } = await call(method, at, undefined, { key: null, headers: header });
        const isPermitted = permitted.has(`${method} ${path}`) && (!isOwn || id === own.id);
        if (isPermitted) expect([method, at, status]).not.toEqual([method, at, expect.toBeOneOf([401, 403])]);
        else expect([method, at, status, body.error?.message]).toEqual([method, at, 403, expect.stringContaining("The key of a session")]);
      }
    }
  }
  for (const path of ["/ui/api/runs", "/nothing-here", `/sessions/${other.id}/v1/chat/completions`]) {
    for (const method of ["GET", "POST"]) {
      const { status } = await call(method, path, method === "POST" ? {} : undefined, { key: own.key });
      expect([method, path, status]).toEqual([method, path, 403]);
    }
  }
  expect((await ok("GET", `${SESSIONS}/${own.id}`)).reward).toBeNull();
});

test("paths with a session's key or id sample for the session", async () => {
  const service = await startTestService();
  const session = await createSession(service);
  const other = await createSession(service);
  const body = { model: "any", max_tokens: 4, messages: [user("a")] };
  const cases: [path: string, key: string | null, status: number][] = [
    [`/sessions/${session.key}/v1/chat/completions`, null, 200],
    [`/sessions/${session.key}/v1/chat/completions`, "no-key", 200],
    [`/sessions/${session.id}/v1/chat/completions`, session.key, 200],
    [`/sessions/${session.id}/v1/chat/completions`, service.service.apiKey, 200],
    [`/sessions/${session.id}/v1/chat/completions`, other.key, 403],
    [`/sessions/${session.id}/v1/chat/completions`, "no-key", 401],
    [`/sessions/${session.id}/v1/chat/completions`, null, 401],
    [`/sessions/${UNKNOWN_ID}/v1/chat/completions`, service.service.apiKey, 404],
    [`/sessions/whs-${"a".repeat(43)}/v1/chat/completions`, service.service.apiKey, 401],
    [`/sessions/${session.key}/v1/models`, service.service.apiKey, 403],
  ];
  for (const [path, key, status] of cases) {
    const answer = path.endsWith("/models")
      ? await service.call("GET", path, undefined, { key })
      : await service.call("POST", path, body, { key });
    expect([path, key, answer.status]).toEqual([path, key, status]);
  }
  const response = await service.ok("POST", "/v1/responses", { input: "a", max_output_tokens: 4 }, { key: session.key });
  const fetched = (key: string | null, prefix = "") => service.call("GET", `${prefix}/v1/responses/${response.id}`, undefined, { key });
  expect((await fetched(session.key)).body).toEqual(response);
  expect((await fetched(service.service.apiKey, `/sessions/${session.id}`)).body).toEqual(response);
  for (const key of [other.key, service.service.apiKey]) expect((await fetched(key)).status).toBe(404);
  expect((await service.ok("GET", `${SESSIONS}/${session.id}`)).requests).toBe(5);
  expect((await service.ok("GET", `${SESSIONS}/${other.id}`)).requests).toBe(0);
  expect(JSON.stringify(service.requests)).not.toContain(session.key);
});

test.each([
  ["sessions", "service"],
  ["api_keys", `wsk_${"a".repeat(43)}`],
])("a path with a session's id fails with the error of the database if the table %s cannot be read", async (table, key) => {
  onSqlite();
  const service = await startTestService();
  const { id } = await createSession(service);
  const database = await openConnection(join(service.service.dataDir, "whetstone.db"), 1000);
  database.exec(`ALTER TABLE ${table} RENAME TO unreadable`);
  database.close();
  const presented = key === "service" ? service.service.apiKey : key;
  const answer = await service.call("POST", `/sessions/${id}/v1/chat/completions`, { messages: [user("a")] }, { key: presented });
  expect([answer.status, answer.body.error.error_code]).toEqual([500, "E_INTERNAL"]);
  expect(service.log).toContainEqual(expect.objectContaining({ level: "error", message: "A request failed" }));
});

test("limits are errors that name the field; an expired session is unknown", async () => {
  const service = await startTestService();
  const counted = await createSession(service, { max_requests: 1 });
  expect((await ask(service, counted, { messages: [user("a")] })).status).toBe(200);
  const over = await ask(service, counted, { messages: [user("b")] });
  expect(over).toMatchObject({ status: 403, body: { error: { error_code: "E_FORBIDDEN", param: "max_requests" } } });
  const wide = await ask(service, await createSession(service), { messages: [user("b")], n: 17 });
  expect(wide).toMatchObject({ status: 400, body: { error: { param: "n" } } });
  const short = await createSession(service, { max_tokens: 5 });
  expect((await ask(service, short, { messages: [user("abcdefgh")], max_tokens: 8, ignore_eos: true })).body.usage.completion_tokens).toBe(
    5,
  );
  expect((await ask(service, short, { messages: [user("b")] })).body.error).toMatchObject({ param: "max_tokens" });
  const brief = await createSession(service, { max_seconds: 0.001 });
  expect((await ask(service, brief, { messages: [user("a")] })).body.error).toMatchObject({ param: "max_seconds" });
  expect((await service.ok("GET", `${SESSIONS}/${brief.id}?trajectory=omit`)).status).toBe("timed_out");
  const expired = await createSession(service, { expires_in_seconds: 1 });
  await expect.poll(async () => (await service.call("GET", `${SESSIONS}/${expired.id}`)).status).toBe(404);
  expect((await ask(service, expired, { messages: [user("a")] })).status).toBe(401);
  expect((await service.ok("GET", SESSIONS)).data.map(({ id }: { id: string }) => id)).toMatchObject([
    brief.id,
    short.id,
    expect.any(String),
    counted.id,
  ]);
  for (const [field, value] of Object.entries({
    model: "demo/none/none",
    max_requests: 0,
    sampling_defaults: { messages: [] },
    extra: 1,
  })) {
    const { status } = await service.call("POST", SESSIONS, { model: "tiny", [field]: value });
    expect([field, status]).toEqual([field, field === "model" ? 404 : 422]);
  }
});
