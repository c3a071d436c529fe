/** A service that forwards, with another of ours as its upstream. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { errorBody, type ServedModel } from "../../src/base/schema/index.ts";
import type { UpstreamOptions } from "../../src/service/index.ts";
import type { TestServiceOptions } from "../../src/testing/index.ts";
import { createModel, finishedEvents, startRlJob, startTestService, temporaryDirectory, testBase, type TestService } from "./support.ts";

const CHAT = "/v1/chat/completions";
const messages = [{ role: "user", content: "hello" }];

/** Starts a service that forwards the sampling of `tiny` to another service. */
async function startPair(
  upstreamEngine: TestServiceOptions["engine"] = {},
  options: Partial<UpstreamOptions> = {},
): Promise<{ front: TestService; back: TestService }> {
  const bases = await testBase();
  const back = await startTestService({ engine: { ...upstreamEngine, bases }, apiKey: "upstream-key-123456" });
  const front = await startTestService({
    engine: { bases: bases.map((base) => ({ ...base, id: "tiny" })) },
    upstream: { url: `${back.service.url}/v1`, apiKey: back.service.apiKey, ...options },
  });
  return { front, back };
}

const sampled = ({ engine }: TestService) => engine.calls.filter(({ verb }) => verb === "sample");

describe("a request of a model that the upstream serves", () => {
  it("is forwarded with every field and returns the upstream's response", async () => {
    const { front, back } = await startPair();
    const body = {
      ...{
        model: "tiny",
        messages,
        max_tokens: 4,
        n: 2,
        temperature: 0.5,
        top_k: 7,
        logprobs: true,
        top_logprobs: 2,
        return_token_ids: true,
      },
      ...{ logit_bias: { 3: 1 }, stop_token_ids: [9], min_tokens: 2, request_id: "same", engine_xargs: { a: 1 }, cache_salt: "s" },
    };
    const seed = "9223372036854775807";
    const text = `${JSON.stringify(body).slice(0, -1)},"seed":${seed}}`;
    const headers = { "content-type": "application/json" };
    const forwarded = await front.call("POST", CHAT, text, { headers });
    const direct = await back.call("POST", CHAT, text, { headers });
    expect(forwarded.status).toBe(200);
    const timeless = (answer: Record<string, unknown>) => ({ ...answer, created: 0 });
    expect(timeless(forwarded.body)).toEqual(timeless(direct.body));
    expect(sampled(front)).toEqual([]);
    const params = sampled(back).map(({ detail }) => (detail as { params: { seed?: bigint } }).params);
    expect(params.find((each) => each.seed === BigInt(seed))).toMatchObject({
      temperature: 0.5,
      topK: 7,
      minTokens: 2,
      cacheSalt: "s",
    });
  });

  it("is listed once, with models that only the upstream has, and is the default model", async () => {
    const { front, back } = await startPair({}, { models: { tiny: "tiny", "there/big": "tiny" } });
    const list = await front.ok("GET", "/v1/models");
    const [{ data: there }] = [await back.ok("GET", "/v1/models")];
    const contextLength = there[0].max_model_len as number;
    expect(contextLength).toBeGreaterThan(0);
    expect(
      list.data.map(({ id, max_model_len, permission }: ServedModel) => [id, max_model_len, permission?.[0]?.allow_fine_tuning]),
    ).toEqual([
      ["tiny", contextLength, true],
      ["there/big", contextLength, false],
    ]);
    for (const model of ["there/big", null, ""]) {
      const answer = await front.ok("POST", CHAT, { model, messages, max_tokens: 2 });
      expect(answer.model).toBe(model || "tiny");
    }
    expect(sampled(back)).toHaveLength(3);
  });

  it("keeps the upstream's status, message and parameter of a client error", async () => {
    const { front, back } = await startPair();
    for (const fault of [{ temperature: -1 }, { stop: [""] }, { top_logprobs: 3 }, { seed: "x" }, { messages: [] }, { priority: 2 }]) {
      const body = { model: "tiny", messages, ...fault };
      const [forwarded, direct] = [await front.call("POST", CHAT, body), await back.call("POST", CHAT, body)];
      expect([forwarded.status, forwarded.body]).toEqual([400, direct.body]);
    }
    expect((await front.call("POST", CHAT, "{")).status).toBe(400);
    expect((await front.call("POST", CHAT, { model: "nobody/knows/this", messages })).status).toBe(404);
    expect((await front.call("POST", CHAT, { model: "tiny", messages }, { key: "wrong" })).status).toBe(401);
  });

  it("is streamed in chunks with the requested model name", async () => {
    const { front, back } = await startPair({}, { models: { alias: "tiny" } });
    const body = { messages, max_tokens: 6, stream: true, stream_options: { include_usage: true }, seed: 4, request_id: "same" };
    const [forwarded, direct] = [
      await front.call("POST", CHAT, { model: "alias", ...body }),
      await back.call("POST", CHAT, { model: "tiny", ...body }),
    ];
    const chunks = (text: string) =>
      text.split("\n\n").flatMap((event) => (event.startsWith("data: {") ? [JSON.parse(event.slice(6)) as Record<string, any>] : []));
    expect(forwarded.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(forwarded.body.endsWith("data: [DONE]\n\n")).toBe(true);
    expect(new Set(chunks(forwarded.body).map(({ model }) => model))).toEqual(new Set(["alias"]));
    const said = (text: string) =>
      chunks(text)
        .flatMap(({ choices }) => choices.map((choice: any) => choice.delta?.content ?? ""))
        .join("");
    expect(said(forwarded.body)).toBe(said(direct.body));
    expect(chunks(forwarded.body).at(-1)!["usage"]).toEqual(chunks(direct.body).at(-1)!["usage"]);
  });

  it("ends with an error event when the forwarding service closes during the stream", async () => {
    const { front } = await startPair({
      before: async ({ verb, detail }, { signal }) => {
        if (verb !== "sampleToken" || detail !== 1) return;
        await new Promise((resolve) => signal!.addEventListener("abort", resolve, { once: true }));
      },
    });
    const response = await fetch(front.service.url + CHAT, {
      method: "POST",
      headers: { authorization: `Bearer ${front.service.apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "tiny", messages, stream: true, max_tokens: 8 }),
    });
    const closed = front.service.close({ graceMs: 100 });
    expect((await response.text()).split("\n\n").slice(-3)).toEqual([expect.stringContaining("shutting down"), "data: [DONE]", ""]);
    await closed;
  });

  it("is aborted on the upstream within a token when its client disconnects", async () => {
    let [spoken, isEnded] = [0, false];
    const { front } = await startPair({
      script: () => Array.from({ length: 100 }, () => 5),
      before: async ({ verb, detail }, { signal }) => {
        if (verb !== "sampleToken") return;
        // The front may also have asked for a token of its own, to see whether `ignore_eos` is read.
        spoken = Number(detail) + 1;
        if (detail !== 3) return;
        // However long it takes to come here through two services.
        await new Promise((resolve) => signal!.addEventListener("abort", resolve, { once: true }));
        isEnded = true;
      },
    });
    const response = await fetch(front.service.url + CHAT, {
      method: "POST",
      headers: { authorization: `Bearer ${front.service.apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "tiny", messages, stream: true, ignore_eos: true, max_tokens: 100 }),
    });
    const reader = response.body!.getReader();
    await reader.read();
    await reader.cancel();
    await expect.poll(() => isEnded).toBe(true);
    expect(spoken).toBe(4);
  });
});

describe("a trained model", () => {
  it("without an adapter is sampled upstream at step 0 and locally after training", async () => {
    const { front, back } = await startPair();
    const { id } = await createModel(front);
    const answer = await front.ok("POST", CHAT, { model: "local/demo/reverse", messages, max_tokens: 2 });
    expect([answer.model, sampled(back).length, sampled(front).length]).toEqual(["local/demo/reverse:step0", 1, 0]);
    await finishedEvents(front, await startRlJob(front, id));
    const trained = await front.ok("POST", CHAT, { model: "local/demo/reverse", messages, max_tokens: 2 });
    expect([trained.model, sampled(back).length, sampled(front).length]).toEqual(["local/demo/reverse:step1", 1, 1]);
  });
});

/** Starts a server of chat completions with scripted answers that records its requests. */
async function startFake(
  handle: (path: string, body: any, response: ServerResponse, request: IncomingMessage) => void,
  description: object | null = null,
): Promise<{ url: string; asked: { path: string; body: any }[]; close: () => void }> {
  const asked: { path: string; body: any }[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const [path, text] = [request.url ?? "", Buffer.concat(chunks).toString()];
      const json = (status: number, value: object) => {
        response.writeHead(status, { "content-type": "application/json" });
        response.end(JSON.stringify(value));
      };
      if (path === "/v1/models") return json(200, { data: [{ id: "tiny" }, { id: "an-adapter", parent: "tiny" }] });
      if (path === "/openapi.json") return description === null ? json(404, {}) : json(200, description);
      const body = text === "" ? null : (JSON.parse(text) as unknown);
      asked.push({ path, body });
      handle(path, body, response, request);
    })();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  onTestFinished(close);
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, close };
}

const say = (response: ServerResponse, status: number, body: object, headers: Record<string, string> = {}) => {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
};
const completion = (model: string) => ({ id: "x", object: "chat.completion", created: 1, model, choices: [], usage: null });

async function startFront(url: string, options: Partial<UpstreamOptions> = {}, more: TestServiceOptions = {}): Promise<TestService> {
  return startTestService({ ...more, engine: { bases: await testBase() }, upstream: { url, ...options } });
}

describe("an upstream", () => {
  it("with a description gets only fields that it knows, with its own names", async () => {
    const properties = Object.fromEntries(["messages", "model", "vllm_xargs", "temperature", "n"].map((name) => [name, {}]));
    const description = { components: { schemas: { ChatCompletionRequest: { properties } } } };
    const { url, asked } = await startFake((_path, body, response) => say(response, 200, completion(body.model)), description);
    const front = await startFront(url, { refusedFields: ["n"] });
    await front.ok("POST", CHAT, { model: "tiny", messages, engine_xargs: { a: 1 }, echo: false, stop: [], user: null });
    expect(asked[0]!.body).toEqual({ model: "tiny", messages, vllm_xargs: { a: 1 }, echo: false, stop: [], user: null });
    for (const field of ["repetition_detection", "n"]) {
      const { status, body } = await front.call("POST", CHAT, {
        model: "tiny",
        messages,
        [field]: field === "n" ? 2 : { max_pattern_size: 2, min_count: 2 },
      });
      expect([status, body.error.param]).toEqual([400, field]);
    }
    expect(asked).toHaveLength(1);
    for (const refused of ["engine_xargs", "vllm_xargs"]) {
      const other = await startFront(url, { refusedFields: [refused] });
      const { status, body } = await other.call("POST", CHAT, { model: "tiny", messages, engine_xargs: { a: 1 } });
      expect([status, body.error.param]).toEqual([400, "engine_xargs"]);
    }
  });

  it("with a description gets fields with their default value, and requests with other unknown fields are rejected", async () => {
    const properties = Object.fromEntries(["messages", "model"].map((name) => [name, {}]));
    const description = { components: { schemas: { ChatCompletionRequest: { properties } } } };
    const { url, asked } = await startFake((_path, body, response) => say(response, 200, completion(body.model)), description);
    const front = await startFront(url);
    const defaults = { skip_special_tokens: true, parallel_tool_calls: true, add_generation_prompt: "true", n: 1, stop: [], echo: false };
    await front.ok("POST", CHAT, { model: "tiny", messages, ...defaults, priority: 0, logit_bias: {}, seed: null });
    for (const [field, value] of [
      ["skip_special_tokens", false],
      ["parallel_tool_calls", false],
      ["include_reasoning", false],
      ["temperature", 0],
      ["echo", true],
    ] as const) {
      const { status, body } = await front.call("POST", CHAT, { model: "tiny", messages, [field]: value });
      expect([status, body.error?.param]).toEqual([400, field]);
    }
    expect(asked).toHaveLength(1);
  });

  /** A server without a description: it reads some fields beyond OpenAI's, and ignores or rejects unknown fields. */
  async function startUndescribed(reads: readonly string[], { isStrict = false } = {}) {
    const known = new Set([...reads, "model", "messages", "max_tokens", "temperature", "response_format"]);
    return startFake((_path, body, response) => {
      const invalid = Object.keys(body as object).filter((name) => (known.has(name) ? JSON.stringify(body[name]) === "[[{}]]" : isStrict));
      if (invalid.length === 0) return say(response, 200, completion(body.model));
      say(response, 400, { error: { message: `invalid ${invalid[0]}`, type: "BadRequestError", param: invalid[0], code: 400 } });
    });
  }

  it("without a description is probed once per field beyond OpenAI's; requests with ignored fields are rejected", async () => {
    const { url, asked } = await startUndescribed(["bad_words"]);
    const front = await startFront(url, { supportedFields: ["prompt_logprobs"] });
    for (let turn = 0; turn < 2; turn++) {
      await front.ok("POST", CHAT, { model: "tiny", messages, temperature: 0.5, bad_words: ["x"], prompt_logprobs: 1 });
      for (const [field, value] of [
        ["structured_outputs", { choice: ["a"] }],
        ["allowed_token_ids", [1]],
        ["vllm_xargs", { a: 1 }],
      ] as const) {
        const { status, body } = await front.call("POST", CHAT, { model: "tiny", messages, [field]: value });
        expect([status, body.error?.param]).toEqual([400, field]);
        expect(body.error.message).toContain("supportedFields");
      }
    }
    const forwarded = asked.filter(({ body }) => body.max_tokens !== 1).map(({ body }) => Object.keys(body as object));
    expect(forwarded).toEqual([1, 2].map(() => ["model", "messages", "temperature", "bad_words", "prompt_logprobs"]));
    // One probe of an unknown field, then one of each field in question.
    const probed = asked.filter(({ body }) => body.max_tokens === 1).map(({ body }) => Object.keys(body as object).at(-1));
    expect(probed).toEqual(["whetstone_unknown_field", "bad_words", "structured_outputs", "allowed_token_ids", "vllm_xargs"]);
  });

  it("without a description that rejects unknown fields itself is sent every field", async () => {
    const { url, asked } = await startUndescribed([], { isStrict: true });
    const front = await startFront(url);
    const { status, body } = await front.call("POST", CHAT, { model: "tiny", messages, bad_words: ["x"] });
    expect([status, body.error.message]).toEqual([400, "invalid bad_words"]);
    expect(asked.map(({ body: sent }) => Object.keys(sent as object).at(-1))).toEqual([
      "whetstone_unknown_field",
      "max_tokens",
      "bad_words",
    ]);
  });

  it("that is unavailable during a probe gets a retryable error, and the next request probes again", async () => {
    let isDown = true;
    const { url } = await startFake((_path, body, response) => {
      if (isDown) return say(response, 503, {});
      if (JSON.stringify(body.bad_words) === "[[{}]]") return say(response, 422, { error: { message: "invalid bad_words" } });
      say(response, 200, completion(body.model));
    });
    const front = await startFront(url);
    const request = { model: "tiny", messages, bad_words: ["x"] };
    expect(await front.call("POST", CHAT, request)).toMatchObject({ status: 503, body: { error: { error_code: "E_UNAVAILABLE" } } });
    isDown = false;
    expect((await front.call("POST", CHAT, request)).status).toBe(200);
  });

  it("gets fields that are unknown to the service, which is logged once", async () => {
    const { url, asked } = await startUndescribed([]);
    const front = await startFront(url);
    for (let turn = 0; turn < 2; turn++) await front.ok("POST", CHAT, { model: "tiny", messages, mood: "calm" });
    expect(asked.map(({ body }) => body.mood)).toEqual(["calm", "calm"]);
    expect(front.log.filter(({ message }) => message.includes("the upstream may ignore it"))).toMatchObject([
      { fields: { field: "mood" } },
    ]);
  });

  it("that does not respond is disconnected when the client disconnects, without an error log", async () => {
    let [isAsked, isLeft] = [false, false];
    const { url } = await startFake((_path, _body, response) => {
      isAsked = true;
      response.once("close", () => (isLeft = true));
    });
    const front = await startFront(url);
    const abort = new AbortController();
    const answer = fetch(front.service.url + CHAT, {
      method: "POST",
      headers: { authorization: `Bearer ${front.service.apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "tiny", messages }),
      signal: abort.signal,
    });
    await expect.poll(() => isAsked).toBe(true);
    abort.abort();
    await expect(answer).rejects.toThrow();
    await expect.poll(() => isLeft).toBe(true);
    await expect.poll(() => front.requests.some(({ path }) => path === CHAT)).toBe(true);
    expect(front.log.filter(({ level }) => level === "error")).toEqual([]);
  });

  it.each([
    [429, { error: { message: "busy", type: "x", param: null, code: 429 } }, 429, "busy", "E_OVERLOADED"],
    [503, {}, 503, "The server that samples this model has no room now", "E_OVERLOADED"],
    [401, { error: { message: "your key sk-secret is wrong" } }, 500, "Internal server error", "E_ENGINE"],
    [500, { error: { message: "CUDA error at 0xdeadbeef" } }, 500, "Internal server error", "E_ENGINE"],
    [404, { error: { message: "no such model" } }, 503, "The server that samples this model does not have it any more", "E_OVERLOADED"],
    [413, { error: { message: "too long" } }, 413, "too long", "E_TOO_LARGE"],
    [422, { error: { message: "bad field", type: "Bad Request", param: "top_p" } }, 400, "bad field", "E_ARGUMENT"],
    [400, { object: "error", message: "older shape", type: "BadRequestError", param: null, code: 400 }, 400, "older shape", "E_ARGUMENT"],
  ])("that answers %i with %j", async (status, answer, told, message, code) => {
    const { url } = await startFake((_path, _body, response) => say(response, status, answer, { "retry-after": "7" }));
    const front = await startFront(url);
    const found = await front.call("POST", CHAT, { model: "tiny", messages });
    expect(found.status).toBe(told);
    expect(errorBody.parse(found.body).error).toMatchObject({ message, code: told, error_code: code });
    if (status === 429) expect(found.headers.get("retry-after")).toBe("7");
  });

  it("that breaks a stream leads to an error event, and an unreachable one to 503", async () => {
    const { url } = await startFake((_path, _body, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('data: {"model":"tiny","choices":[]}\n\n', () => setTimeout(() => response.destroy(), 20));
    });
    const front = await startFront(url);
    const { body } = await front.call("POST", CHAT, { model: "tiny", messages, stream: true });
    expect(body).toMatch(
      /^data: \{"model":"tiny","choices":\[\]\}\n\ndata: \{"error":.*"code":500,"error_code":"E_ENGINE"\}\}\n\ndata: \[DONE\]\n\n$/s,
    );
    const gone = await startFake(() => {});
    const other = await startFront(gone.url);
    gone.close();
    const answer = await other.call("POST", CHAT, { model: "tiny", messages });
    expect([answer.status, answer.headers.get("retry-after"), answer.body.error.type]).toEqual([503, "1", "ServiceUnavailableError"]);
  });

  const event = 'data: {"model":"tiny","choices":[]}\n\n';
  const renamedEvent = 'data: {"model":"alias","choices":[]}\n\n';
  const failure = /^data: \{"error":\{"message":"Internal server error".*"code":500,"error_code":"E_ENGINE"\}\}\n\ndata: \[DONE\]\n\n$/;
  it.each([
    ["breaks off inside an event", [event, 'data: {"model":"tiny","cho'], true, failure],
    ["breaks off inside a line's end", [event, `${event}data: {"model":"tiny"}\n`], true, failure],
    ["ends without [DONE]", [event], false, failure],
    ["ends inside an event", [event, 'data: {"model":"tiny","choices":['], false, failure],
    ["ends as it should, in pieces", [event.slice(0, 9), `${event.slice(9)}data: [DO`, "NE]\n\n"], false, /^data: \[DONE\]\n\n$/],
    ["leaves out the last blank line", [event, "data: [DONE]"], false, /^data: \[DONE\]\n\n$/],
  ])("that %s: forwards only complete events", async (_name, pieces, isBroken, end) => {
    const { url } = await startFake((_path, _body, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const write = async () => {
        for (const piece of pieces) {
          await new Promise((resolve) => response.write(piece, resolve));
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
        if (isBroken) response.destroy();
        else response.end();
      };
      void write();
    });
    for (const [model, expected] of [
      ["tiny", event],
      ["alias", renamedEvent],
    ] as const) {
      const front = await startFront(url, { models: { tiny: "tiny", alias: "tiny" } });
      const { body } = await front.call("POST", CHAT, { model, messages, stream: true });
      const whole = pieces.join("").split(event).length - 1;
      expect(body.slice(0, expected.length * whole)).toBe(expected.repeat(whole));
      expect(body.slice(expected.length * whole)).toMatch(end);
    }
  });

  it.each(["<html>no</html>", '"text"', "[]", ""])("that answers 200 with %j leads to 500, also with a model alias", async (answer) => {
    const { url } = await startFake((_path, _body, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(answer);
    });
    const front = await startFront(url, { models: { tiny: "tiny", alias: "tiny" } });
    for (const model of ["tiny", "alias"]) {
      const { status, body } = await front.call("POST", CHAT, { model, messages });
      expect([status, body.error.message]).toEqual([500, "Internal server error"]);
    }
  });

  it("is read only as fast as the client reads", async () => {
    const event = Buffer.from(`data: ${JSON.stringify({ model: "tiny", choices: [], padding: "x".repeat(60_000) })}\n\n`);
    const limit = 400 * 2 ** 20;
    let written = 0;
    const { url } = await startFake((_path, _body, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const write = () => {
        while (written < limit && !response.destroyed) {
          written += event.length;
          if (!response.write(event)) return void response.once("drain", write);
        }
      };
      write();
    });
    const front = await startFront(url, { models: { alias: "tiny" } });
    const response = await fetch(front.service.url + CHAT, {
      method: "POST",
      headers: { authorization: `Bearer ${front.service.apiKey}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "alias", messages, stream: true }),
    });
    const reader = response.body!.getReader();
    await reader.read();
    // When the sockets' buffers are full, the upstream waits.
    const writtenIn200Ms = async () => {
      const before = written;
      await new Promise((resolve) => setTimeout(resolve, 200));
      return written - before;
    };
    await expect.poll(writtenIn200Ms).toBe(0);
    expect(written).toBeLessThan(limit / 4);
    await reader.cancel();
  });

  it("that is unreachable or lacks a configured model fails the start", async () => {
    await expect(startFront("http://127.0.0.1:9")).rejects.toMatchObject({ code: "E_CONFIG" });
    const { url } = await startFake(() => {});
    await expect(startFront(url, { models: { tiny: "other" } })).rejects.toMatchObject({
      code: "E_CONFIG",
      message: expect.stringContaining("does not serve other") as string,
    });
  });

  it("loads an adapter's checkpoint once and unloads idle adapters", async () => {
    const loaded = new Set<string>();
    const { url, asked } = await startFake((path, body, response) => {
      if (path === "/v1/load_lora_adapter") {
        loaded.add(body.lora_name as string);
        return say(response, 200, {});
      }
      if (path === "/v1/unload_lora_adapter") {
        loaded.delete(body.lora_name as string);
        return say(response, 200, {});
      }
      say(response, 200, completion(body.model));
    });
    const dataDir = await temporaryDirectory();
    const front = await startFront(url, { adapters: true, maxIdleAdapters: 1, dataDir: "/mnt/data" }, { dataDir });
    const { id } = await front.ok("POST", "/v1/preview/models", { project: "demo", name: "lora", base_model: "tiny", lora: { rank: 4 } });
    for (let step = 0; step < 2; step++) await finishedEvents(front, await startRlJob(front, id));
    // The scripted engine saves no adapter file, which the service looks for.
    for (const directory of await readdir(join(dataDir, "checkpoints", id))) {
      const path = join(dataDir, "checkpoints", id, directory);
      await mkdir(path, { recursive: true });
      await writeFile(join(path, "adapter_config.json"), "{}");
    }
    for (const step of [1, 1, 2]) {
      const answer = await front.ok("POST", CHAT, { model: `local/demo/lora:step${step}`, messages });
      expect(answer.model).toBe(`local/demo/lora:step${step}`);
    }
    const loads = asked.filter(({ path }) => path === "/v1/load_lora_adapter");
    expect(loads).toHaveLength(2);
    for (const { body } of loads) expect(body.lora_path).toMatch(new RegExp(`^/mnt/data/checkpoints/${id}/`));
    await expect.poll(() => loaded.size).toBe(1);
    expect(sampled(front)).toEqual([]);
  });
});
