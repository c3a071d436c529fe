import { describe, expect, it } from "vitest";
import { HttpError } from "../../src/index.ts";
import { readRetryAfter } from "../../src/library/client/retry.ts";
import { send, type Interceptor } from "../support/nine-routes-server.ts";
import { rejection, useServer } from "./connection.ts";

const open = useServer();

/** Fails the first `times` matching requests. */
function failing(times: number, status: number, headers: Record<string, string> = {}): Interceptor {
  let left = times;
  return (_, response) => {
    if (left-- <= 0) return false;
    send(response, status, { detail: "busy" }, headers);
    return true;
  };
}

describe("retries", () => {
  it("repeats a GET after 429 and 503", async () => {
    const { server, service } = await open();
    for (const status of [429, 503]) {
      server.intercept = failing(1, status, { "retry-after": "0" });
      await expect(service.models.list()).resolves.toHaveLength(1);
    }
    expect(server.requests).toHaveLength(4);
  });

  it("repeats a POST that creates a resource with the same Idempotency-Key", async () => {
    const { server, service } = await open();
    server.intercept = failing(2, 500);
    await service.models.create({ project: "p", name: "n", baseModel: "tiny" });
    const keys = server.requests.map(({ headers }) => headers["idempotency-key"]);
    expect(keys).toHaveLength(3);
    expect(new Set(keys).size).toBe(1);
    expect(keys[0]).toMatch(/^[0-9a-f-]{36}$/);
  });

  it("repeats the POST of a job after an ambiguous failure only if the service supports idempotency keys", async () => {
    const { server, service } = await open({ maxRetries: 2 });
    const body = { model_id: "11111111-1111-4111-8111-111111111111", training_data_url: "artifact:///a/b/c:v0" };
    server.intercept = failing(9, 500);
    await expect(service.trainingJobs.createSft(body)).rejects.toMatchObject({ status: 500 });
    expect(server.requests).toHaveLength(1);
    // 503 means that the job was not started.
    server.intercept = failing(1, 503);
    await expect(service.trainingJobs.createSft(body)).rejects.toMatchObject({ status: 404 });
    expect(server.requests).toHaveLength(3);
    server.intercept = (request, response) => {
      send(response, 200, { id: body.model_id }, { "idempotency-key": String(request.headers["idempotency-key"]) });
      return true;
    };
    await service.trainingJobs.createSft(body);
    expect(service.features.idempotencyKeys).toBe(true);
    server.intercept = failing(9, 500);
    await expect(service.trainingJobs.createSft(body)).rejects.toMatchObject({ status: 500 });
    expect(server.requests).toHaveLength(7);
  });

  it("repeats after a reset connection", async () => {
    const { server, service } = await open();
    let left = 1;
    server.intercept = (_, response) => left-- > 0 && (response.destroy(), true);
    await expect(service.models.list()).resolves.toHaveLength(1);
  });

  it("fails after `maxRetries` with the last error", async () => {
    const { server, service } = await open({ maxRetries: 1 });
    server.intercept = failing(9, 503);
    await expect(service.models.list()).rejects.toMatchObject({ code: "E_HTTP", status: 503, retryable: true });
    expect(server.requests).toHaveLength(2);
  });

  it("does not repeat after an error that is not retryable", async () => {
    const { server, service } = await open();
    await expect(service.models.delete("11111111-1111-4111-8111-111111111111")).rejects.toMatchObject({ status: 404, retryable: false });
    expect(server.requests).toHaveLength(1);
  });

  it("does not repeat after 507", async () => {
    const { server, service } = await open();
    server.intercept = failing(9, 507);
    await expect(service.models.create({ project: "p", name: "n", baseModel: "tiny" })).rejects.toMatchObject({
      status: 507,
      retryable: false,
    });
    expect(server.requests).toHaveLength(1);
  });

  const params = { messages: [{ role: "user", content: "hi" }] };

  it.each([429, 503])("repeats a chat request after %i, because it was not started", async (status) => {
    const { server, service } = await open();
    server.intercept = failing(1, status, { "retry-after": "0" });
    await expect(service.chat.completions.create(params)).resolves.toMatchObject({ choices: [{ message: { content: "abc" } }] });
    expect(server.requests).toHaveLength(2);
  });

  it("never repeats a chat request that may have been started", async () => {
    const { server, service } = await open();
    server.intercept = failing(1, 500);
    await expect(service.chat.completions.create(params)).rejects.toMatchObject({ status: 500 });
    server.intercept = (_, response) => (response.destroy(), true);
    await expect(service.chat.completions.create(params)).rejects.toMatchObject({ code: "E_CONNECTION" });
    expect(server.requests).toHaveLength(2);
  });

  it("an abort ends the wait before a retry with the signal's reason", async () => {
    const { server, service } = await open();
    const controller = new AbortController();
    const reason = new Error("enough");
    server.intercept = (_, response) => {
      send(response, 503, {}, { "retry-after": "60" });
      setImmediate(() => controller.abort(reason));
      return true;
    };
    await expect(rejection(service.models.list({ signal: controller.signal }))).resolves.toBe(reason);
    expect(server.requests).toHaveLength(1);
  });

  it("an abort rejects a running request with the signal's reason and closes its connection", async () => {
    const { server, service } = await open();
    const controller = new AbortController();
    const reason = new Error("enough");
    server.intercept = () => (controller.abort(reason), true);
    const gone = server.nextAbort();
    await expect(rejection(service.chat.completions.create(params, { signal: controller.signal }))).resolves.toBe(reason);
    await gone;
  });

  it("a call that exceeds `timeoutMs` rejects with a TimeoutError", async () => {
    const { server, service } = await open();
    server.intercept = () => true;
    await expect(service.models.list({ timeoutMs: 30 })).rejects.toMatchObject({ name: "TimeoutError" });
  });
});

describe("errors", () => {
  it.each([
    [
      { error: { message: "no such model", type: "NotFoundError", param: "model", code: 404, error_code: "E_NOT_FOUND" } },
      { type: "NotFoundError", param: "model", serviceCode: "E_NOT_FOUND" },
      "no such model",
    ],
    [{ error: { message: "as OpenAI has it", code: "model_not_found" } }, { serviceCode: "model_not_found" }, "as OpenAI has it"],
    [{ error: { message: "as vLLM has it", code: 404 } }, { serviceCode: 404 }, "as vLLM has it"],
    [{ error: "Unauthorized" }, { type: null, param: null }, "Unauthorized"],
    [{ detail: "Not Found" }, { param: null }, "Not Found"],
    [
      { detail: [{ loc: ["body", "config", "batch_size"], msg: "must be positive", type: "x" }] },
      { param: "config.batch_size" },
      "config.batch_size: must be positive",
    ],
    ["<html>bad gateway</html>", { param: null }, "bad gateway"],
  ])("parses the error body %j", async (body, fields, text) => {
    const { server, service } = await open();
    server.intercept = (_, response) => {
      response.writeHead(404, { "x-request-id": "r-1" });
      response.end(typeof body === "string" ? body : JSON.stringify(body));
      return true;
    };
    const error = await rejection(service.models.list());
    expect(error).toBeInstanceOf(HttpError);
    expect(error).toMatchObject({ code: "E_HTTP", status: 404, requestId: "r-1", ...fields });
    expect(error.message).toContain(text);
  });

  it("keeps the API key out of messages, JSON and inspection, even if the service echoes it", async () => {
    const { inspect } = await import("node:util");
    const { server, service } = await open();
    server.intercept = (_, response) => (send(response, 400, { detail: `bad key ${server.apiKey}` }), true);
    const error = await rejection(service.models.list());
    for (const text of [
      error.message,
      JSON.stringify(error),
      inspect(error, { depth: 9 }),
      JSON.stringify(service),
      inspect(service, { depth: 9 }),
    ]) {
      expect(text).not.toContain(server.apiKey);
    }
    expect(service.apiKey).toBe(server.apiKey);
  });

  it("throws a ProtocolError for a response that does not match the schema", async () => {
    const { server, service } = await open();
    server.intercept = (_, response) => (send(response, 200, { data: [{ id: 5 }] }), true);
    await expect(service.models.list()).rejects.toMatchObject({
      code: "E_PROTOCOL",
      message: expect.stringContaining("data.0.id") as string,
    });
    server.intercept = (_, response) => (response.end("not json"), true);
    await expect(service.models.list()).rejects.toMatchObject({ code: "E_PROTOCOL" });
    expect(server.requests).toHaveLength(2);
  });

  it("throws a ConnectionError if no server listens", async () => {
    const { server, service } = await open({ maxRetries: 0 });
    await server.close();
    await expect(service.models.list()).rejects.toMatchObject({ code: "E_CONNECTION", retryable: true, isBeforeSend: true });
  });

  it("parses Retry-After as seconds and as a date", () => {
    expect(readRetryAfter("1.5")).toBe(1500);
    expect(readRetryAfter("Thu, 01 Jan 1970 00:00:03 GMT", 1000)).toBe(2000);
    expect(readRetryAfter("soon")).toBeNull();
    expect(readRetryAfter(undefined)).toBeNull();
  });
});
