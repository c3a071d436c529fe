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
  ["POST", "/health"],
];

test("every route but GET /health asks for the key before anything else", async () => {
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
      expect(answer.body.error.code).toBe(path.startsWith("/v1/chat/") ? 401 : "E_UNAUTHORIZED");
      expect(JSON.stringify(answer.body)).not.toContain(service.apiKey);
    }
    expect([method, path, (await call(method, path)).status]).not.toContain(401);
  }
});

test("GET /health answers without a key", async () => {
  const { call } = await startTestService();
  const answer = await call("GET", "/health", undefined, { key: null });
  expect([answer.status, answer.body]).toEqual([200, { status: "ok" }]);
});

test("the scheme's case does not matter, and the key may be given", async () => {
  const { call } = await startTestService({ apiKey: "a-key-of-my-own" });
  for (const scheme of ["Bearer", "bearer", "BEARER"]) {
    expect(
      (await call("GET", "/v1/models", undefined, { key: null, headers: { authorization: `${scheme} a-key-of-my-own` } })).status,
    ).toBe(200);
  }
});
