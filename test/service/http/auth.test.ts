import { expect, test } from "vitest";
import { MODELS, startTestService, UNKNOWN_ID, type TestService } from "../support.ts";

/** Routes of the OpenAPI document that need a key, with identifiers that do not exist in the path, and a path without a route. */
async function routes(call: TestService["call"]): Promise<[string, string][]> {
  const { body } = await call("GET", "/openapi.json", undefined, { key: null });
  const paths = Object.entries((body as { paths: Record<string, Record<string, { security?: unknown[] }>> }).paths);
  const described = paths.flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { security }]) => security?.length !== 0)
      .map(([method]): [string, string] => [method.toUpperCase(), path.replaceAll(/\{\w+\}/gu, UNKNOWN_ID)]),
  );
  expect(described.length).toBeGreaterThan(20);
  return [...described, ["GET", "/nothing-here"]];
}

test("answers 401 without the key on every route that needs it", async () => {
  const { call, service } = await startTestService();
  for (const [method, path] of await routes(call)) {
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
      const type = path.startsWith("/v1/messages") ? "authentication_error" : "AuthenticationError";
      expect(answer.body.error).toMatchObject({ type, param: null });
      expect(answer.body.error).toMatchObject({ code: 401, error_code: "E_UNAUTHORIZED" });
      expect(JSON.stringify(answer.body)).not.toContain(service.apiKey);
    }
    expect([method, path, (await call(method, path)).status]).not.toContain(401);
  }
});

test("GET and HEAD /health answer without a key", async () => {
  const { call } = await startTestService();
  const [ping, version] = await Promise.all(["/ping", "/version"].map((path) => call("GET", path, undefined, { key: null })));
  const answer = await call("GET", "/health", undefined, { key: null });
  expect([ping?.status, ping?.body]).toEqual([200, answer.body]);
  expect([version?.status, version?.body]).toEqual([200, { version: expect.stringMatching(/^\d+\.\d+\.\d+/u) }]);
  expect(answer).toMatchObject({ status: 200, body: { status: "ok", storage: { state: "ok" } } });
  expect(await call("HEAD", "/health", undefined, { key: null })).toMatchObject({ status: 200, body: "" });
  expect(await call("HEAD", "/v1/models", undefined, { key: null })).toMatchObject({ status: 401, body: "" });
});

test("OPTIONS lists the methods of a path without a key and without running the route, and allows no other origin", async () => {
  const { call, engine } = await startTestService();
  const preflight = { origin: "https://elsewhere.example", "access-control-request-method": "POST" };
  for (const [path, allowed] of [
    ["/health", "GET, HEAD, OPTIONS"],
    ["/v1/models/a/b/c", "GET, HEAD, DELETE, OPTIONS"],
    [MODELS, "GET, HEAD, POST, OPTIONS"],
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

test("accepts a configured key and any case of the scheme", async () => {
  const { call } = await startTestService({ apiKey: "a-key-of-my-own" });
  for (const scheme of ["Bearer", "bearer", "BEARER"]) {
    expect(
      (await call("GET", "/v1/models", undefined, { key: null, headers: { authorization: `${scheme} a-key-of-my-own` } })).status,
    ).toBe(200);
  }
});
