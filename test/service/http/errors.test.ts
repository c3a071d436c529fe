import { request } from "node:http";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { ARTIFACTS, MODELS, RL_JOBS, SFT_JOBS, startTestService, UNKNOWN_ID } from "../support.ts";

test("answers 404 for unknown routes and 405 for other methods, with the error body", async () => {
  const { call } = await startTestService();
  expect(await call("GET", "/v1/nothing")).toMatchObject({
    status: 404,
    body: { error: { type: "NotFoundError", param: null, code: 404, error_code: "E_NOT_FOUND" } },
  });
  const wrong = await call("GET", SFT_JOBS);
  expect(wrong).toMatchObject({ status: 405, body: { error: { type: "MethodNotAllowedError", code: 405, error_code: "E_METHOD" } } });
  expect(wrong.headers.get("allow")).toBe("POST, OPTIONS");
  expect((await call("DELETE", "/v1/chat/completions")).body.error).toMatchObject({ code: 405, error_code: "E_METHOD" });
  expect((await call("PUT", `${RL_JOBS}/${UNKNOWN_ID}`)).status).toBe(405);
});

test("answers 422 on preview routes and 400 on chat for invalid JSON", async () => {
  const { call } = await startTestService();
  expect(await call("POST", MODELS, "{not json")).toMatchObject({
    status: 422,
    body: { error: { type: "ValidationError", code: 422, error_code: "E_ARGUMENT", message: expect.stringContaining("JSON") } },
  });
  expect((await call("POST", MODELS)).body.error.message).toContain("an empty body");
  const chat = await call("POST", "/v1/chat/completions", "{not json", { headers: { "content-type": "application/json" } });
  expect([chat.status, chat.body.error.code, chat.body.error.error_code]).toEqual([400, 400, "E_ARGUMENT"]);
});

test("answers 400 for half of a surrogate pair as escape sequence, in every JSON body", async () => {
  const { call, ok } = await startTestService();
  const headers = { "content-type": "application/json" };
  const session = await ok("POST", "/v1/preview/sessions", { model: "tiny" });
  const artifact = { project: "demo", name: "data" };
  const bodies: readonly (readonly [path: string, body: object])[] = [
    [MODELS, { project: "demo", name: "?", base_model: "tiny" }],
    [ARTIFACTS, { ...artifact, metadata: { "?": 1 } }],
    [RL_JOBS, { model_id: UNKNOWN_ID, trajectory_groups: ["?"] }],
    [SFT_JOBS, { model_id: UNKNOWN_ID, training_data_url: "?" }],
    ["/v1/preview/sessions", { model: "tiny", metadata: { a: "?" } }],
    [`/v1/preview/sessions/${session.id}/metrics`, { metrics: { "?": 1 } }],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "?" }] }],
    ["/v1/responses", { input: "?" }],
    ["/v1/messages", { messages: [{ role: "user", content: "?" }] }],
    ["/v1/completions", { prompt: "?" }],
    ["/tokenize", { prompt: "?" }],
  ];
  for (const escape of ["\\ud800", "a\\uDBFFb", "\\udc00\\ud800", "\\\\\\ud83d\\\\udd8a"]) {
    for (const [path, body] of bodies) {
      const { status, body: answer } = await call("POST", path, JSON.stringify(body).replaceAll("?", escape), { headers });
      expect([path, escape, status, answer.error?.message]).toEqual([
        path,
        escape,
        400,
        expect.stringContaining("half of a surrogate pair"),
      ]);
    }
  }
  for (const escape of ["\\ud83e\\udd8a", "\\\\ud800", "\\ud7ff\\ue000", "🦊"]) {
    const sent = JSON.stringify({ ...artifact, metadata: { "?": 1 } }).replaceAll("?", escape);
    const { status, body } = await call("POST", ARTIFACTS, sent, { headers });
    expect([escape, status, Object.keys(body.metadata)]).toEqual([escape, 200, [JSON.parse(`"${escape}"`)]]);
  }
});

test("answers 400 for a body that is not UTF-8, and skips a byte order mark", async () => {
  const { call, ok } = await startTestService();
  const encoded = (text: string) =>
    Buffer.concat(
      text
        .split("?")
        .flatMap((part, index) => (index === 0 ? [part] : [Buffer.of(0xff), part]))
        .map((part) => Buffer.from(part)),
    );
  const headers = { "content-type": "application/json" };
  for (const [path, type, body] of [
    [MODELS, "BadRequestError", '{"project": "demo", "name": "x?", "base_model": "tiny"}'],
    [RL_JOBS, "BadRequestError", `{"model_id": "${UNKNOWN_ID}", "trajectory_groups": ["?"]}`],
    ["/v1/chat/completions", "Bad Request", '{"model": "tiny", "messages": [{"role": "user", "content": "?"}]}'],
  ] as const) {
    const answer = await call("POST", path, encoded(body), { headers });
    expect([path, answer.status, answer.body.error]).toEqual([
      path,
      400,
      { message: expect.stringContaining("UTF-8"), type, param: null, code: 400, error_code: "E_ARGUMENT" },
    ]);
  }
  const marked = Buffer.from('\uFEFF{"project": "demo", "name": "marked", "base_model": "tiny"}');
  expect(await ok("POST", MODELS, marked, { headers })).toMatchObject({ name: "marked" });
});

test("logs no error for a client that disconnects during its body", async () => {
  const { service, log, requests } = await startTestService();
  const { hostname, port } = new URL(service.url);
  for (const length of ["Content-Length: 500", "Content-Length: 1500000", "Transfer-Encoding: chunked"]) {
    const socket = connect(Number(port), hostname);
    const start = `POST ${MODELS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${service.apiKey}\r\n${length}\r\n\r\n5\r\n{"a":`;
    socket.write(start, () => setTimeout(() => socket.destroy(), 50));
  }
  await expect.poll(() => requests.map(({ status }) => status)).toEqual([499, 499, 499]);
  expect(log).toEqual([]);
});

test("validation errors name the path, the expected and received value, and allowed names", async () => {
  const { call } = await startTestService();
  const wrongType = await call("POST", MODELS, { project: "demo", name: 7, base_model: "tiny" });
  expect(wrongType).toMatchObject({ status: 422, body: { error: { param: "name" } } });
  expect(wrongType.body.error.message).toMatch(/`name`.*expected string.*received number/);
  const unknown = await call("POST", MODELS, { project: "demo", name: "x", base_model: "tiny", base: 1 });
  expect(unknown).toMatchObject({ status: 422, body: { error: { param: "base" } } });
  expect(unknown.body.error.message).toContain("allowed: project, name, base_model, entity, return_existing, lora");
  const nested = await call("POST", RL_JOBS, {
    model_id: UNKNOWN_ID,
    trajectory_groups: [{ trajectories: [] }],
    experimental_config: { learning_rat: 1 },
  });
  expect(nested).toMatchObject({ status: 422, body: { error: { param: "experimental_config.learning_rat" } } });
  expect(nested.body.error.message).toContain("learning_rate");
  const deep = await call("POST", RL_JOBS, {
    model_id: UNKNOWN_ID,
    trajectory_groups: [{ trajectories: [{ messages_and_choices: [{ message: { role: "assistant" }, token_ids: ["a"] }] }] }],
  });
  expect(deep.body.error.param).toBe("trajectory_groups.0.trajectories.0.messages_and_choices.0.token_ids.0");
  const limit = await call("GET", `${MODELS}/${UNKNOWN_ID}/checkpoints?limit=101`);
  expect(limit).toMatchObject({ status: 422, body: { error: { param: "limit" } } });
});

test("answers 413 for bodies over the limit, with and without Content-Length, and stores nothing", async () => {
  const { call, ok } = await startTestService({ limits: { maxBodyBytes: 1000, maxArtifactFileBytes: 2000 } });
  const tooMuch = { project: "demo", name: "x", base_model: "tiny", padding: "x".repeat(2000) };
  expect(await call("POST", MODELS, tooMuch)).toMatchObject({
    status: 413,
    body: { error: { type: "RequestTooLargeError", code: 413, error_code: "E_TOO_LARGE" } },
  });
  const chunked = () => new Blob([JSON.stringify(tooMuch)]).stream();
  expect((await call("POST", MODELS, chunked())).status).toBe(413);
  expect((await call("POST", "/v1/chat/completions", chunked())).body.error).toMatchObject({ code: 413, error_code: "E_TOO_LARGE" });
  const version = await ok("POST", ARTIFACTS, { project: "demo", name: "data" });
  expect((await call("PUT", `${ARTIFACTS}/${version.id}/files/a`, "x".repeat(2001))).status).toBe(413);
  expect((await call("PUT", `${ARTIFACTS}/${version.id}/files/a`, new Blob(["x".repeat(2001)]).stream())).status).toBe(413);
  expect((await ok("GET", `${ARTIFACTS}/${version.id}`)).files).toEqual([]);
  // Over the limit of JSON, within that of files.
  expect((await ok("PUT", `${ARTIFACTS}/${version.id}/files/a`, "x".repeat(1500))).size_bytes).toBe(1500);
});

test("rejects paths that leave the artifact, in any encoding", async () => {
  const { service, ok } = await startTestService();
  const { id } = await ok("POST", ARTIFACTS, { project: "demo", name: "data" });
  // Raw requests: fetch would tidy the dots away.
  const put = (path: string) =>
    new Promise<{ status: number; body: string }>((resolve, reject) => {
      const { hostname, port } = new URL(service.url);
      const sent = request(
        { hostname, port, method: "PUT", path, headers: { authorization: `Bearer ${service.apiKey}`, connection: "close" } },
        (response) => {
          let text = "";
          response.on("data", (chunk: Buffer) => (text += chunk.toString()));
          response.on("end", () => resolve({ status: response.statusCode ?? 0, body: text }));
        },
      );
      sent.on("error", reject);
      sent.end("x");
    });
  for (const path of [
    "../x",
    "..%2fx",
    "%2e%2e/x",
    "a/../../x",
    "a/%2e%2e/%2e%2e/x",
    "/etc/passwd",
    "a//b",
    "a/./b",
    "a\\..\\b",
    "%00",
    "",
    "%zz",
  ]) {
    const answer = await put(`${ARTIFACTS}/${id}/files/${path}`);
    expect([path, answer.status, Math.floor(answer.status / 100)]).toEqual([path, expect.any(Number), 4]);
    expect([path, JSON.parse(answer.body || "{}")]).toEqual([path, { error: expect.objectContaining({ message: expect.any(String) }) }]);
  }
  expect((await ok("GET", `${ARTIFACTS}/${id}`)).files).toEqual([]);
});

test("answers 500 without details for an internal error, and logs it without the API key", async () => {
  const { call, ok, log, service } = await startTestService({
    engine: {
      before: ({ verb }) => {
        if (verb === "describeBase") throw new Error(`secret detail ${service.apiKey}`);
      },
    },
  });
  const answer = await call("POST", MODELS, { project: "demo", name: "x", base_model: "tiny" });
  expect(answer).toMatchObject({ status: 500, body: { error: { type: "InternalServerError", code: 500, error_code: "E_INTERNAL" } } });
  expect(JSON.stringify(answer.body)).not.toContain("secret");
  expect(JSON.stringify(log)).toContain("secret detail [key]");
  expect(JSON.stringify(log)).not.toContain(service.apiKey);
  expect((await ok("GET", "/v1/models")).data).toHaveLength(1);
});

test("removes a key with quotes and a key in a path from the log", async () => {
  const apiKey = `a"quoted'key\\0/1`;
  const { call, log, requests } = await startTestService({
    apiKey,
    engine: {
      before: ({ verb }) => {
        if (verb === "describeBase")
          throw new Error(`body ${JSON.stringify({ authorization: `Bearer ${apiKey}` })} of ${encodeURI(apiKey)}`);
      },
    },
  });
  await call("POST", MODELS, { project: "demo", name: "x", base_model: "tiny" });
  await call("GET", `/v1/${encodeURIComponent(apiKey)}`);
  expect(log).toMatchObject([
    { level: "error", fields: { path: MODELS, error: expect.stringContaining('{"authorization":"Bearer [key]"} of [key]') } },
  ]);
  expect(requests.at(-1)).toMatchObject({ path: "/v1/[key]", status: 404 });
  // Any character may be percent-encoded, also twice.
  const sessionKey = `hs-${"a1_".repeat(14)}Z`;
  for (const path of [
    `/sessions/%77${sessionKey}/v1/x`,
    `/sessions/%2577${sessionKey}/v1/x`,
    `/sessions/w%68s-${sessionKey.slice(3)}/v1/x`,
  ]) {
    await call("GET", path);
    expect(requests.at(-1)).toMatchObject({ path: "/sessions/[key]/v1/x" });
  }
});

test("control characters in a path stay percent-encoded for the request hook", async () => {
  const { call, requests } = await startTestService();
  await call("GET", "/v1/x%0A2026-01-01T00:00:00Z%20error%20forged%1B%5B2K%E2%80%AE", undefined, { key: null });
  expect(requests).toMatchObject([{ path: "/v1/x%0A2026-01-01T00:00:00Z%20error%20forged%1B%5B2K%E2%80%AE", status: 401 }]);
});

test("the request hook receives id, method, path without query, route, entity, status and duration", async () => {
  const { call, requests } = await startTestService();
  await call("GET", "/v1/models?key=secret");
  await call("GET", "/v1/models", undefined, { key: null });
  const times = { id: expect.stringMatching(/^[0-9a-f]{32}$/u), durationMs: expect.any(Number) };
  const record = { ...times, method: "GET", path: "/v1/models", route: "/v1/models", entity: "local" };
  expect(requests).toEqual([
    { ...record, status: 200 },
    { ...record, status: 401 },
  ]);
});
