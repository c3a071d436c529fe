/** Dialects with the rest of the service: failures, connections, other servers, retries. */
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it, vi } from "vitest";
import { sourceOf } from "../../../src/service/chat/pipeline.ts";
import { eventStream } from "../../../src/service/chat/answer/chunk-source.ts";
import { shapedStream } from "../../../src/service/dialects/chunks.ts";
import type { EventShaper } from "../../../src/dialects/answer-builder.ts";
import { startTestService, testBase, type TestService } from "../support.ts";
import { assembledMessage, send } from "./players.ts";

/** First request of each agent as recorded from its command-line tool, with shortened texts and parameters. */
const agentRequests = JSON.parse(readFileSync(new URL("agent-requests.json", import.meta.url), "utf8")) as readonly {
  readonly agent: string;
  readonly path: Path | "/v1/chat/completions";
  readonly body: any;
}[];

const messages = [{ role: "user", content: "hello" }];
/** A body of each sampled route. */
const ROUTES = {
  "/v1/messages": { messages, max_tokens: 8 },
  "/v1/responses": { input: "hello", max_output_tokens: 8 },
  "/v1/completions": { prompt: "hello", max_tokens: 8 },
} as const;
type Path = keyof typeof ROUTES;
const paths = Object.keys(ROUTES) as Path[];

/** Starts a service with an engine that fails at the fourth token. */
const startFailing = (): Promise<TestService> =>
  startTestService({
    engine: {
      script: ({ params }) => Array.from({ length: params.maxTokens }, () => 5),
      before: ({ verb, detail }) => {
        if (verb === "sampleToken" && detail === 3) throw new Error("out of order");
      },
    },
  });

describe("a failure of the engine", () => {
  it("is answered in the format of the dialect", async () => {
    const test = await startFailing();
    for (const path of paths) {
      const { status, body } = await send(test, path, ROUTES[path]);
      const type = path === "/v1/messages" ? "api_error" : "InternalServerError";
      expect([path, status, body.error]).toMatchObject([path, 500, { type, message: "Internal server error", error_code: "E_ENGINE" }]);
    }
  });
  it("is the last event of a stream, in the format of the dialect", async () => {
    const test = await startFailing();
    const failed = async (path: Path) => (await send(test, path, { ...ROUTES[path], stream: true })).events.slice(-2);
    const error = { message: "Internal server error", error_code: "E_ENGINE" };
    expect((await failed("/v1/messages")).at(-1)).toMatchObject({
      name: "error",
      data: { type: "error", error: { ...error, type: "api_error" } },
    });
    expect(await failed("/v1/completions")).toMatchObject([{ data: { error } }, { data: "[DONE]" }]);
    expect(await failed("/v1/responses")).toMatchObject([
      { name: "error", data: { type: "error", code: "E_ENGINE", message: error.message } },
      { name: "response.failed", data: { response: { status: "failed", error: { code: "server_error", error_code: "E_ENGINE" } } } },
    ]);
  });
});

describe("coding agents with their default tools", () => {
  it("are answered, and hosted tools are listed as they were sent", async () => {
    const test = await startTestService({ engine: { bases: await testBase(16_384) } });
    for (const { agent, path, body } of agentRequests) {
      // Sent as recorded, except for texts, parameters and the number of tokens.
      const sent = await send(test, path, {
        ...body,
        max_completion_tokens: 4,
        ...(path === "/v1/responses" ? { max_output_tokens: 4 } : {}),
      });
      expect([agent, sent.status]).toEqual([agent, 200]);
      const types = sent.events.map(({ name }) => name);
      if (path === "/v1/messages") expect(types.at(-1)).toBe("message_stop");
      if (path !== "/v1/responses") continue;
      expect(sent.events[0]?.data).toMatchObject({ type: "response.created", response: { tools: body.tools } });
      expect(body.tools.map(({ type }: { type?: string }) => type)).toContain("web_search");
      expect(types.at(-1)).toMatch(/^response\.(?:completed|incomplete)$/u);
    }
  });
});

describe("the error format of the Messages API", () => {
  it("is the format of every failure below its path", async () => {
    const test = await startTestService();
    const { apiKey } = test.service;
    const errorOf = async (path: string, body: object, headers: Record<string, string> = { "x-api-key": apiKey }) => {
      const { status, body: answer } = await send(test, path, body, headers);
      return [status, answer.type, answer.error?.type, answer.error?.error_code];
    };
    const body = ROUTES["/v1/messages"];
    expect(await errorOf("/v1/messages", body, { "x-api-key": "another" })).toEqual([
      401,
      "error",
      "authentication_error",
      "E_UNAUTHORIZED",
    ]);
    expect(await errorOf("/v1/messages", { ...body, model: "no/such/model" })).toEqual([404, "error", "not_found_error", "E_NOT_FOUND"]);
    expect(await errorOf("/v1/messages/batches", body)).toEqual([404, "error", "not_found_error", "E_NOT_FOUND"]);
    expect(await errorOf("/v1/messages/count_tokens", {})).toEqual([400, "error", "invalid_request_error", "E_ARGUMENT"]);
    expect(await errorOf("/v1/messages", { ...body, system: "x".repeat(9 * 2 ** 20) })).toEqual([
      413,
      "error",
      "request_too_large",
      "E_TOO_LARGE",
    ]);
    expect(await errorOf("/v1/messages", { ...body, thread: { type: "create" } })).toEqual([
      400,
      "error",
      "invalid_request_error",
      "E_UNSUPPORTED",
    ]);
  });
});

describe("a stream", () => {
  it("aborts its request if the client leaves", async () => {
    let ended = 0;
    const test = await startTestService({
      engine: {
        script: ({ params }) => Array.from({ length: params.maxTokens }, () => 5),
        before: async ({ verb, detail }, { signal }) => {
          if (verb !== "sampleToken" || detail !== 2) return;
          await new Promise((resolve) => signal!.addEventListener("abort", resolve, { once: true }));
          ended++;
        },
      },
    });
    for (const path of paths) {
      const leave = new AbortController();
      const init = { method: "POST", headers: { "content-type": "application/json", "x-api-key": test.service.apiKey } };
      const body = JSON.stringify({ ...ROUTES[path], stream: true });
      const { body: stream } = await fetch(`${test.service.url}${path}`, { ...init, body, signal: leave.signal });
      await stream!.getReader().read();
      leave.abort();
    }
    await expect.poll(() => ended).toBe(paths.length);
  });

  it("of a response is not stored if the client disconnects", async () => {
    let hasEnded = false;
    const test = await startTestService({
      engine: {
        script: ({ params }) => Array.from({ length: params.maxTokens }, () => 5),
        before: async ({ verb, detail }, { signal }) => {
          if (verb !== "sampleToken" || detail !== 2) return;
          await new Promise((resolve) => signal!.addEventListener("abort", resolve, { once: true }));
          hasEnded = true;
        },
      },
    });
    const leave = new AbortController();
    const headers = { "content-type": "application/json", authorization: `Bearer ${test.service.apiKey}` };
    const body = JSON.stringify({ ...ROUTES["/v1/responses"], stream: true });
    const { body: stream } = await fetch(`${test.service.url}/v1/responses`, { method: "POST", headers, body, signal: leave.signal });
    const { value } = await stream!.getReader().read();
    const [id] = /resp_[0-9a-f]+/u.exec(new TextDecoder().decode(value))!;
    leave.abort();
    await expect.poll(() => hasEnded).toBe(true);
    expect(await test.call("GET", `/v1/responses/${id}`)).toMatchObject({ status: 404, body: { error: { error_code: "E_NOT_FOUND" } } });
  });

  afterEach(() => void vi.useRealTimers());
  it("gets a ping while it waits", async () => {
    vi.useFakeTimers();
    let controller: ReadableStreamDefaultController<Uint8Array>;
    const source = new ReadableStream<Uint8Array>({ start: (given) => void (controller = given) });
    const shaper: EventShaper = { push: () => [{ data: "chunk" }], end: () => [{ data: "[DONE]" }], fail: () => [] };
    const ping = { name: "ping", data: { type: "ping" } };
    const reader = shapedStream([eventStream(source).chunks()], { shaper, ping, pingMs: 500, explain: () => expect.fail() }).getReader();
    const next = async (): Promise<string> => new TextDecoder().decode((await reader.read()).value);
    for (let count = 0; count < 2; count++) {
      const first = next();
      await vi.advanceTimersByTimeAsync(500);
      expect(await first).toBe('event: ping\ndata: {"type":"ping"}\n\n');
    }
    controller!.enqueue(new TextEncoder().encode("data: {}\n\n"));
    expect(await next()).toBe('data: "chunk"\n\n');
    controller!.close();
    expect(await next()).toBe("data: [DONE]\n\n");
    expect((await reader.read()).done).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("a body over 64 KiB, which is translated on a work thread,", () => {
  const text = "the fox and ".repeat(6000);
  it("is answered as the same request of chat completions", async () => {
    const test = await startTestService({ engine: { bases: await testBase(200_000) } });
    const post = async (path: string, body: object) => (await send(test, path, { model: "tiny", ...body })).body;
    const more = { return_token_ids: true, seed: 3 };
    const history = [{ role: "user", content: text }];
    const chat = await post("/v1/chat/completions", { messages: history, max_tokens: 8, ...more });
    const promptIds = chat.prompt_token_ids;
    expect(promptIds.length).toBeGreaterThan(6000);
    const expected = { prompt_token_ids: promptIds, token_ids: chat.choices[0].token_ids };
    expect(await post("/v1/messages", { messages: history, max_tokens: 8, ...more })).toMatchObject(expected);
    const response = await post("/v1/responses", { input: text, max_output_tokens: 8, ...more });
    expect(response).toMatchObject(expected);
    const { events } = await send(test, "/v1/messages", { messages: history, max_tokens: 8, ...more, stream: true });
    expect(assembledMessage(events)).toMatchObject(expected);
    expect(await post("/v1/messages/count_tokens", { messages: history })).toEqual({ input_tokens: promptIds.length });
    expect((await post("/tokenize", { messages: history })).tokens).toEqual(promptIds);
    const { tokens } = await post("/tokenize", { prompt: text });
    const completion = await post("/v1/completions", { prompt: [text, text], max_tokens: 2, echo: true, ...more });
    expect(completion.choices.map((choice: any) => choice.prompt_token_ids)).toEqual([tokens, tokens]);
    expect(completion.choices[0].text.startsWith(text)).toBe(true);
    const next = await post("/v1/responses", { input: text, previous_response_id: response.id, max_output_tokens: 8, ...more });
    expect(next.prompt_token_ids.slice(0, promptIds.length)).toEqual(promptIds);
    expect(next.prompt_token_ids.length).toBeGreaterThan(2 * promptIds.length);
  });
  it("has the errors of a small body", async () => {
    const test = await startTestService();
    const wrong = [
      ["/v1/messages", { messages: [{ role: "user", content: [{ type: "image", source: {} }] }] }],
      ["/v1/responses", { input: "a", tools: [{ type: "web_search" }], tool_choice: "required" }],
      ["/v1/completions", { prompt: "a", suffix: "b" }],
      ["/v1/completions", { prompt: 1 }],
    ] as const;
    for (const [path, body] of wrong) {
      const small = await send(test, path, body);
      const large = await send(test, path, { ...body, metadata: { text } });
      expect([path, small.status, small.body.error.param]).toEqual([path, 400, expect.any(String)]);
      const withoutRequestId = ({ body: { request_id: _requestId, ...members }, ...answer }: typeof small) => ({
        ...answer,
        body: members,
      });
      expect(withoutRequestId(large)).toEqual(withoutRequestId(small));
    }
    const { status, body } = await send(test, "/v1/messages", text as unknown as object);
    expect([status, body.error.error_code]).toEqual([400, "E_ARGUMENT"]);
  });
});

describe("a model that another server samples", () => {
  it("answers messages and responses, and rejects prompts without messages", async () => {
    const bases = await testBase();
    const back = await startTestService({ engine: { bases }, apiKey: "upstream-key-123456" });
    const front = await startTestService({ engine: { bases }, upstream: { url: `${back.service.url}/v1`, apiKey: back.service.apiKey } });
    const more = { model: "tiny", seed: 4 };
    for (const path of ["/v1/messages", "/v1/responses"] as const) {
      const [forwarded, direct] = await Promise.all(
        [front, back].map(async (test) => (await send(test, path, { ...ROUTES[path], ...more })).body),
      );
      expect(forwarded.content ?? forwarded.output[0].content).toEqual(direct.content ?? direct.output[0].content);
      const invalid = await send(front, path, { ...ROUTES[path], ...more, temperature: -1 });
      expect([invalid.status, invalid.body.error.param]).toEqual([400, "temperature"]);
    }
    const ask = { ...ROUTES["/v1/messages"], ...more };
    const streamed = assembledMessage((await send(front, "/v1/messages", { ...ask, stream: true })).events);
    expect(streamed.content).toEqual((await send(back, "/v1/messages", ask)).body.content);
    expect(front.engine.calls.filter(({ verb }) => verb === "sample")).toEqual([]);
    expect(await send(front, "/v1/completions", { ...ROUTES["/v1/completions"], ...more })).toMatchObject({
      status: 400,
      body: { error: { error_code: "E_UNSUPPORTED", param: "prompt" } },
    });
    const session = await front.ok("POST", "/v1/preview/sessions", { model: "tiny", max_tokens: 3 });
    const limited = await front.ok("POST", "/v1/chat/completions", { messages, ignore_eos: true }, { key: session.key });
    expect(limited.usage.completion_tokens).toBe(3);
  });
});

it("the source of a call has the digest of the client's body and the retry count", () => {
  const body = new TextEncoder().encode("{}");
  const digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
  expect(sourceOf("messages", body, "1")).toEqual({ dialect: "messages", digest, retryCount: 1 });
  expect(sourceOf("messages", body, undefined).retryCount).toBeNull();
  expect(sourceOf("messages", body, "-1").retryCount).toBeNull();
});
