import { expect, test } from "vitest";
import { ARTIFACTS, MODELS, RL_JOBS, SFT_JOBS, startTestService, UNKNOWN_ID } from "./support.ts";

const ROUTES: readonly (readonly [string, string])[] = [
  ["POST", "/v1/chat/completions"],
  ["POST", "/v1/chat/completions/"],
  ["GET", "/v1/models"],
  ["GET", "/v1/preview/base-models"],
  ["POST", MODELS],
  ["DELETE", `${MODELS}/${UNKNOWN_ID}`],
  ["GET", `${MODELS}/${UNKNOWN_ID}/checkpoints`],
  ["DELETE", `${MODELS}/${UNKNOWN_ID}/checkpoints`],
  ["POST", RL_JOBS],
  ["POST", SFT_JOBS],
  ["GET", `${RL_JOBS}/${UNKNOWN_ID}`],
  ["GET", `${RL_JOBS}/${UNKNOWN_ID}/events`],
  ["POST", `${RL_JOBS}/${UNKNOWN_ID}/cancel`],
  ["POST", ARTIFACTS],
  ["GET", `${ARTIFACTS}/${UNKNOWN_ID}`],
  ["PUT", `${ARTIFACTS}/${UNKNOWN_ID}/files/train.jsonl`],
  ["GET", `${ARTIFACTS}/${UNKNOWN_ID}/files/train.jsonl`],
  ["POST", `${ARTIFACTS}/${UNKNOWN_ID}/commit`],
  ["GET", "/nothing-here"],
];

test("every route but the public ones asks for the key before anything else", async () => {
  const { call, service } = await startTestService();
  for (const [method, path] of ROUTES) {
    for (const authorization of [
      undefined,
      "Bearer",
      "Bearer wrong-key",
      `Basic ${service.apiKey}`,
      `Bearer ${service.apiKey}x`,
      `Bearer ${service.apiKey.slice(1)}`,
    ]) {
      const answer = await call(method, path, undefined, {
        key: null,
        ...(authorization === undefined ? {} : { headers: { authorization } }),
      });
      expect([method, path, authorization, answer.status]).toEqual([method, path, authorization, 401]);
      expect(answer.body.error).toMatchObject({ type: "AuthenticationError", param: null });
      expect(answer.body.error).toMatchObject({ code: 401, error_code: "E_UNAUTHORIZED" });
      expect(JSON.stringify(answer.body)).not.toContain(service.apiKey);
    }
    expect([method, path, (await call(method, path)).status]).not.toContain(401);
  }
});

test("GET and HEAD /health answer without a key", async () => {
  const { call } = await startTestService();
  const answer = await call("GET", "/health", undefined, { key: null });
  expect(answer).toMatchObject({ status: 200, body: { status: "ok", storage: { state: "ok" } } });
  expect(await call("HEAD", "/health", undefined, { key: null })).toMatchObject({ status: 200, body: "" });
  expect(await call("HEAD", "/v1/models", undefined, { key: null })).toMatchObject({ status: 401, body: "" });
});

test("OPTIONS lists the methods of a path without a key and without running the route, and allows no other origin", async () => {
  const { call, engine } = await startTestService();
  const preflight = { origin: "https://elsewhere.example", "access-control-request-method": "POST" };
  for (const [path, allowed] of [
    ["/health", "GET, HEAD, OPTIONS"],
    [MODELS, "POST, OPTIONS"],
    [`${MODELS}/${UNKNOWN_ID}/checkpoints`, "GET, HEAD, DELETE, OPTIONS"],
    ["/v1/chat/completions", "POST, OPTIONS"],
  ] as const) {
    const answer = await call("OPTIONS", path, undefined, { key: null, headers: preflight });
    expect([path, answer.status, answer.headers.get("allow"), answer.body]).toEqual([path, 204, allowed, ""]);
    expect([...answer.headers.keys()].filter((name) => name.startsWith("access-control"))).toEqual([]);
  }
  expect(await call("OPTIONS", "/nothing-here", undefined, { key: null })).toMatchObject({
    status: 404,
    body: { error: { code: 404, error_code: "E_NOT_FOUND" } },
  });
  expect(engine.calls).toEqual([]);
});

test("the scheme's case does not matter, and the key may be given", async () => {
  const { call } = await startTestService({ apiKey: "a-key-of-my-own" });
  for (const scheme of ["Bearer", "bearer", "BEARER"]) {
    expect(
      (await call("GET", "/v1/models", undefined, { key: null, headers: { authorization: `${scheme} a-key-of-my-own` } })).status,
    ).toBe(200);
  }
});
