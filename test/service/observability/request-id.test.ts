/** The identifier of a request in answers, error bodies and log lines. */
import { connect as openSocket } from "node:net";
import { once } from "node:events";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { startTestService, type TestService } from "../support.ts";

const DRAWN = /^[0-9a-f]{32}$/u;
const MESSAGES = [{ role: "user" as const, content: "hi" }];
const CHAT = { messages: MESSAGES, max_tokens: 2 };

/** Sends raw bytes, and returns everything that the service answers. */
async function raw({ service }: TestService, text: string): Promise<string> {
  const { port } = new URL(service.url);
  const socket = openSocket(Number(port), "127.0.0.1");
  let answer = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => (answer += chunk));
  socket.end(text);
  await once(socket, "close");
  return answer;
}

describe("the header x-request-id", () => {
  it("is in every answer: of routes, errors, streams, unknown paths and missing keys", async () => {
    const { call } = await startTestService();
    const answers = [
      await call("GET", "/health", undefined, { key: null }),
      await call("GET", "/v1/models"),
      await call("GET", "/v1/models", undefined, { key: null }),
      await call("GET", "/nowhere"),
      await call("DELETE", "/health"),
      await call("OPTIONS", "/health"),
      await call("POST", "/v1/chat/completions", CHAT),
      await call("POST", "/v1/chat/completions", { ...CHAT, stream: true }),
      await call("POST", "/v1/chat/completions", { ...CHAT, n: 0 }),
      await call("POST", "/v1/preview/models", {}),
    ];
    const ids = answers.map(({ headers }) => headers.get("x-request-id") ?? "");
    for (const id of ids) expect(id).toMatch(DRAWN);
    expect(new Set(ids).size).toBe(answers.length);
  });

  it("is the client's if it has 1 to 128 visible characters, else a new one", async () => {
    const { call } = await startTestService();
    const answered = async (id: string) =>
      (await call("GET", "/health", undefined, { headers: { "x-request-id": id } })).headers.get("x-request-id");
    for (const id of ["a", "run-7/step:3", "x".repeat(128)]) expect(await answered(id)).toBe(id);
    for (const id of ["", "two words", "x".repeat(129), "caf\u00e9"]) expect(await answered(id)).toMatch(DRAWN);
  });

  it("is in answers to requests that cannot be parsed or have an unsupported expectation", async () => {
    const server = await startTestService();
    expect(await raw(server, "nonsense\r\n\r\n")).toMatch(/^HTTP\/1\.1 400 [^]*\r\nX-Request-Id: [0-9a-f]{32}\r\n/u);
    expect(await raw(server, "GET /health HTTP/1.1\r\nHost: a\r\nExpect: more\r\nConnection: close\r\n\r\n")).toMatch(
      /^HTTP\/1\.1 417 [^]*\r\nx-request-id: [0-9a-f]{32}\r\n/iu,
    );
  });

  it("is `_request_id` of the OpenAI client, and in its errors", async () => {
    const { service } = await startTestService();
    const client = new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey, maxRetries: 0 });
    const completion = await client.chat.completions.create({ model: "tiny", ...CHAT }, { headers: { "x-request-id": "mine" } });
    expect(completion._request_id).toBe("mine");
    const failure: unknown = await client.chat.completions.create({ model: "missing", ...CHAT }).catch((error: unknown) => error);
    expect((failure as InstanceType<typeof OpenAI.APIError>).requestID).toMatch(DRAWN);
  });

  it("is `_request_id` of the Anthropic client, and in the body of its errors", async () => {
    const { service } = await startTestService();
    const client = new Anthropic({ baseURL: service.url, apiKey: service.apiKey, maxRetries: 0 });
    const message = await client.messages.create({ model: "tiny", ...CHAT }, { headers: { "x-request-id": "mine" } });
    expect(message._request_id).toBe("mine");
    const failure = (await client.messages.create({ model: "missing", ...CHAT }).catch((error: unknown) => error)) as InstanceType<
      typeof Anthropic.APIError
    >;
    expect(failure.requestID).toMatch(DRAWN);
    expect(failure.error).toMatchObject({ request_id: failure.requestID });
  });
});

describe("log lines of a request", () => {
  it("name its identifier, for chat and for other routes", async () => {
    const { call, log, engine } = await startTestService({
      engine: {
        script: () => {
          throw new Error("the engine is broken");
        },
      },
    });
    const headers = { "x-request-id": "broken-1" };
    expect((await call("POST", "/v1/chat/completions", CHAT, { headers })).status).toBe(500);
    expect((await call("POST", "/v1/chat/completions", { ...CHAT, stream: true }, { headers })).status).toBe(200);
    engine.describeBase = () => Promise.reject(new Error("the disk is broken"));
    const body = { project: "p", name: "m", base_model: "tiny" };
    expect((await call("POST", "/v1/preview/models", body, { headers: { "x-request-id": "broken-2" } })).status).toBe(500);
    const errors = log.filter(({ level }) => level === "error");
    expect(errors.map(({ fields }) => (fields as { request?: string }).request)).toEqual(["broken-1", "broken-1", "broken-2"]);
  });

  it("a record of a request has its identifier, the pattern of its route, and its entity", async () => {
    const { call, requests } = await startTestService();
    await call("GET", "/v1/preview/models/abc/checkpoints", undefined, { headers: { "x-request-id": "r1" } });
    await call("GET", "/nowhere/special");
    await call("GET", "/v1/models", undefined, { key: null });
    expect(requests).toMatchObject([
      { id: "r1", route: "/v1/preview/models/:model_id/checkpoints", entity: "local", status: 404 },
      { route: "unmatched", status: 404 },
      { route: "/v1/models", status: 401 },
    ]);
  });
});
