/** Streams: format, joined content, stop strings, slow and disconnected readers. */
import { request as httpRequest } from "node:http";
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { StopStrings } from "../../../src/service/chat/generate/stop-strings.ts";
import {
  chatServers,
  END,
  HELLO,
  joinChoice,
  promptIds,
  readEvents,
  tokenizer,
  until,
  type ChatServer,
  type ChatServerOptions,
} from "./support.ts";

const start = chatServers();
const stream = async (server: ChatServer, body: object = {}) => readEvents(await server.post({ ...HELLO, stream: true, ...body }));

describe("shape", () => {
  it("81: sends the role, then text, one finish reason and [DONE]; the deltas join to the plain answer", async () => {
    const server = await start({ says: "some words here" });
    const response = await server.post({ ...HELLO, stream: true });
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    const { chunks, isDone } = await readEvents(response);
    expect(isDone).toBe(true);
    expect(chunks[0]).toEqual({
      id: expect.stringMatching(/^chatcmpl-/),
      object: "chat.completion.chunk",
      created: expect.any(Number),
      model: "whetstone-tiny",
      choices: [{ index: 0, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }],
      prompt_token_ids: null,
    });
    expect(new Set(chunks.map((chunk) => `${chunk.id} ${chunk.created} ${chunk.model}`)).size).toBe(1);
    expect(joinChoice(chunks)).toMatchObject({ content: "some words here", finishes: ["stop"], stopReason: null });
    expect(chunks.every((chunk) => !("usage" in chunk))).toBe(true);
    expect(chunks.at(-1).choices[0]).toEqual({
      index: 0,
      delta: { content: expect.any(String) },
      logprobs: null,
      finish_reason: "stop",
      stop_reason: null,
      token_ids: null,
    });
  });
  it("81: the last chunk contains text if the limit ends the output", async () => {
    const { chunks } = await stream(await start({ says: "abcdef" }), { max_tokens: 3 });
    expect(chunks.at(-1).choices[0]).toMatchObject({ finish_reason: "length", delta: { content: expect.stringMatching(/.$/) } });
  });
  it("82, 84: sends usage on request, in a separate chunk", async () => {
    const server = await start();
    const prompt = promptIds(HELLO.messages).length;
    for (const stream_options of [{ include_usage: true }, {}]) {
      const { chunks } = await stream(server, { stream_options });
      const completion = tokenizer.encode("hello").length + 1;
      expect(chunks.at(-1)).toMatchObject({
        choices: [],
        usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
      });
      expect(chunks.slice(0, -1).every((chunk) => !("usage" in chunk))).toBe(true);
    }
    for (const stream_options of [{ include_usage: false }, null, { include_usage: false, continuous_usage_stats: true }]) {
      expect((await stream(server, { stream_options })).chunks.every((chunk) => !("usage" in chunk))).toBe(true);
    }
  });
  it("85: ends every stream with usage if the service is configured so", async () => {
    const server = await start({ limits: { alwaysStreamUsage: true } });
    for (const stream_options of [undefined, null, { include_usage: false }]) {
      const { chunks } = await stream(server, { stream_options });
      expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: expect.any(Number) } });
      expect(chunks.slice(0, -1).every((chunk) => !("usage" in chunk))).toBe(true);
    }
  });
  it("continuous usage counts the tokens of each choice", async () => {
    const { chunks } = await stream(await start(), { stream_options: { include_usage: true, continuous_usage_stats: true }, n: 2 });
    expect(chunks.every((chunk) => typeof chunk.usage.completion_tokens === "number")).toBe(true);
    expect(chunks[0].usage.completion_tokens).toBe(0);
    expect(chunks.at(-1).usage.completion_tokens).toBe(2 * (tokenizer.encode("hello").length + 1));
  });
  it("84: rejects stream_options without a stream", async () => {
    const server = await start();
    for (const stream_options of [{ include_usage: true }, { include_usage: null }]) {
      const response = await server.post({ ...HELLO, stream_options });
      expect([response.status, ((await response.json()) as any).error.param]).toEqual([400, "stream_options"]);
    }
    expect((await server.post({ ...HELLO, stream_options: {} })).status).toBe(200);
  });
  it("86: sends prompt ids only in the first chunk, and every sampled id and logprob", async () => {
    const ids = tokenizer.encode("x🦊y");
    const { chunks } = await stream(await start({ says: [...ids] }), { return_token_ids: true, logprobs: true, n: 2 });
    expect(chunks[0].prompt_token_ids).toEqual(promptIds(HELLO.messages));
    expect(chunks.slice(1).every((chunk) => !chunk.prompt_token_ids)).toBe(true);
    for (const index of [0, 1]) {
      const { tokenIds, logprobs, content, parts } = joinChoice(chunks, index);
      expect(tokenIds).toEqual([...ids, END]);
      expect(logprobs).toHaveLength(ids.length + 1);
      expect(content).toBe("x🦊y");
      for (const part of parts.slice(1)) expect(part.logprobs?.content.length ?? 0).toBe(part.token_ids.length);
    }
  });
  it("a rejected request is answered with its status, not with a stream", async () => {
    const response = await (await start()).post({ ...HELLO, stream: true, model: "no/such/model" });
    expect(response.status).toBe(404);
  });
});

describe("text across tokens", () => {
  const says = "naïve 🦊🦊 日本 end";
  it("no chunk contains part of a character, and logprobs have the bytes of each token", async () => {
    const ids = [...tokenizer.encode(says)];
    expect(ids.length).toBeGreaterThan(Array.from(says).length - 10);
    const { chunks } = await stream(await start({ says: ids }), { logprobs: true });
    const { content, logprobs, parts } = joinChoice(chunks);
    expect(content).toBe(says);
    expect(parts.every((part) => !(part.delta.content ?? "").includes("\ufffd"))).toBe(true);
    expect(Buffer.from(logprobs.slice(0, -1).flatMap((entry) => entry.bytes)).toString()).toBe(says);
  });
  it("a character cut by the limit is shown as U+FFFD, streamed or not", async () => {
    const fox = [...tokenizer.encode("a🦊")];
    const server = await start({ says: fox });
    const limit = { max_tokens: fox.length - 1 };
    const plain = await server.complete({ ...HELLO, ...limit });
    expect(plain.choices[0].message.content).toMatch(/^a\ufffd+$/);
    expect(joinChoice((await stream(server, limit)).chunks).content).toBe(plain.choices[0].message.content);
  });
  it("special tokens are in the ids, but not in the text", async () => {
    const special = [...tokenizer.specialTokenIds].find((id) => id !== END)!;
    const { choices } = await (await start({ says: [special, ...tokenizer.encode("hi")] })).complete({ ...HELLO, return_token_ids: true });
    expect(choices[0].message.content).toBe("hi");
    expect(choices[0].token_ids[0]).toBe(special);
  });
});

describe("stop strings", () => {
  const says = "a small group of people began";
  it.each([
    [".", "one. two", "one", "."],
    ["group of peo", says, "a small ", "group of peo"],
    ["gani", "reorganised", "reor", "gani"],
    ["🦊", "ab🦊cd", "ab", "🦊"],
  ])("47, 48: %j cuts %j", async (stop, text, content, reason) => {
    const server = await start({ says: text });
    const plain = await server.complete({ ...HELLO, stop, return_token_ids: true, logprobs: true });
    expect(plain.choices[0]).toMatchObject({ message: { content }, finish_reason: "stop", stop_reason: reason });
    // All tokens up to the end of the stop string are listed and counted, although the text is cut.
    expect(tokenizer.decode(plain.choices[0].token_ids)).toContain(stop);
    expect(plain.usage.completion_tokens).toBe(plain.choices[0].token_ids.length);
    expect(plain.choices[0].logprobs.content).toHaveLength(plain.choices[0].token_ids.length);
    const { chunks } = await stream(server, { stop: ["never", stop], return_token_ids: true });
    expect(joinChoice(chunks)).toMatchObject({ content, finishes: ["stop"], stopReason: reason, tokenIds: plain.choices[0].token_ids });
  });
  it("50: the end token of the model sets no stop reason", async () => {
    expect((await (await start()).complete({ ...HELLO, stop: ["zzz"] })).choices[0]).toMatchObject({
      message: { content: "hello" },
      finish_reason: "stop",
      stop_reason: null,
    });
  });
  it("take precedence over the limit at the same token", async () => {
    const ids = tokenizer.encode("abc.");
    const { choices } = await (await start({ says: "abc." })).complete({ ...HELLO, stop: ".", max_tokens: ids.length });
    expect(choices[0]).toMatchObject({ finish_reason: "stop", stop_reason: "." });
  });
  it("may have at most 4096 characters", async () => {
    const server = await start();
    expect((await server.post({ ...HELLO, stop: ["a", "x".repeat(4096)] })).status).toBe(200);
    const response = await server.post({ ...HELLO, stop: ["a", "x".repeat(4097)] });
    expect([response.status, ((await response.json()) as { error: { message: string } }).error.message]).toEqual([
      400,
      expect.stringMatching(/`stop`.*4096.*4097/),
    ]);
  });
  it("54: rejects an empty stop string, and more than the maximum number", async () => {
    const response = await (await start()).post({ ...HELLO, stop: ["a", ""] });
    expect(response.status).toBe(400);
    expect((await (await start({ limits: { maxStopStrings: 2 } })).post({ ...HELLO, stop: ["a", "b", "c"] })).status).toBe(400);
  });

  const letters = fc.string({ unit: fc.constantFrom("a", "b", "🦊"), maxLength: 12 });
  test.prop([
    fc.array(letters),
    fc.array(fc.string({ unit: fc.constantFrom("a", "b", "🦊"), minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 }),
  ])("56: streams the text before the match, and no part of a matched stop string, for any chunks", (pieces, stops) => {
    const scanner = new StopStrings(stops);
    let shown = "";
    let seen = "";
    let matched: string | null = null;
    for (const piece of pieces) {
      seen += piece;
      const result = scanner.push(piece);
      shown += result.text;
      matched = result.matched;
      if (matched !== null) break;
      const longest = Math.max(...stops.map((stop) => [...stop].length));
      expect([...shown].length).toBe(Math.max(0, [...seen].length - (longest - 1)));
    }
    if (matched === null) {
      expect(stops.some((stop) => seen.includes(stop))).toBe(false);
      expect(shown + scanner.flush()).toBe(seen);
    } else {
      expect(matched).toBe(stops.find((stop) => seen.includes(stop)));
      expect(shown).toBe(seen.slice(0, seen.indexOf(matched)));
    }
  });
});

describe("slow and disconnected readers", () => {
  /** Returns options for an engine that waits from the fourth token on, and counts aborted samples. */
  function heldEngine() {
    let ended = 0;
    let tokens = 0;
    const options: ChatServerOptions = {
      says: Array.from({ length: 60 }, () => tokenizer.encode("a")[0]!),
      before: async (call, { signal }) => {
        if (call.verb !== "sampleToken" || (call.detail as number) < 3) return;
        tokens++;
        await new Promise((_, reject) => {
          if (signal!.aborted) reject(signal!.reason);
          signal!.addEventListener("abort", () => {
            ended++;
            reject(signal!.reason);
          });
        });
      },
    };
    return { options, ended: () => ended, tokens: () => tokens };
  }

  it.each([{ stream: true }, { stream: false }, { stream: true, n: 3 }, { stream: false, n: 3 }])(
    "a disconnected client frees its engine slots: %j",
    async (body) => {
      const held = heldEngine();
      const server = await start(held.options);
      const client = new AbortController();
      const choices = body.n ?? 1;
      const answer = server.post({ ...HELLO, ...body }, { signal: client.signal }).catch((error: unknown) => error);
      await until(() => held.tokens() === choices, "the engine is at work");
      client.abort();
      await answer;
      await until(() => held.ended() === choices && server.openLeases() === 0, "the engine is told and the lease is given back");
    },
  );

  it("a stop string ends the engine's iterator at once", async () => {
    let returned = 0;
    const server = await start({
      wrap: (engine) => ({
        ...engine,
        async *sample() {
          try {
            for (;;) yield { id: tokenizer.encode("a")[0]!, logprob: -1, top: [] };
          } finally {
            returned++;
          }
        },
      }),
    });
    await server.complete({ ...HELLO, stop: "aaaa" });
    expect(returned).toBe(1);
  });

  it("a reader that pauses neither blocks the engine nor loses a token", async () => {
    const ids = Array.from({ length: 20_000 }, (_, index) => tokenizer.encode(index % 2 === 0 ? "a" : "b")[0]!);
    let isAllSampled = false;
    const server = await start({
      contextLength: 30_000,
      wrap: (engine) => ({
        ...engine,
        async *sample() {
          for (const [index, id] of ids.entries()) {
            isAllSampled = index === ids.length - 1;
            yield { id, logprob: -0.123456789, top: [], ...(isAllSampled ? { finish: "length" as const } : {}) };
            // Yields to the event loop, like an engine.
            if (index % 500 === 0) await new Promise((resolve) => setImmediate(resolve));
          }
        },
      }),
    });
    const text = await new Promise<string>((resolve, reject) => {
      const request = httpRequest(
        `${server.url}/v1/chat/completions`,
        { method: "POST", headers: { "content-type": "application/json" } },
        (response) => {
          response.pause();
          until(() => isAllSampled && server.openLeases() === 0, "everything is sampled")
            .then(async () => {
              let body = "";
              for await (const chunk of response) body += String(chunk);
              resolve(body);
            })
            .catch(reject);
        },
      );
      request.on("error", reject);
      request.end(JSON.stringify({ ...HELLO, stream: true, logprobs: true, return_token_ids: true }));
    });
    const events = text
      .split("\n\n")
      .slice(0, -1)
      .map((event) => event.slice(6));
    expect(events.pop()).toBe("[DONE]");
    expect(joinChoice(events.map((event) => JSON.parse(event))).tokenIds).toEqual(ids);
  });

  it("shutdown ends plain requests with 503, and streams with an error event", async () => {
    const held = heldEngine();
    const shutdown = new AbortController();
    const server = await start({ ...held.options, signal: shutdown.signal });
    const [plain, streamed] = [server.post(HELLO), server.post({ ...HELLO, stream: true })];
    await until(() => held.tokens() === 2, "both are at work");
    shutdown.abort();
    const response = await plain;
    expect([response.status, response.headers.get("retry-after")]).toEqual([503, "1"]);
    expect((await readEvents(await streamed)).chunks.at(-1).error).toMatchObject({ code: 503 });
    expect((await server.post(HELLO)).status).toBe(503);
  });

  it("requests over the limit are answered with 429 and Retry-After, until capacity is free again", async () => {
    const held = heldEngine();
    const server = await start({ ...held.options, limits: { maxRunningChoices: 3 } });
    const client = new AbortController();
    const running = server.post({ ...HELLO, n: 2 }, { signal: client.signal }).catch(() => null);
    await until(() => held.tokens() === 2, "two choices run");
    const refused = await server.post({ ...HELLO, n: 2 });
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "1"]);
    expect(((await refused.json()) as any).error).toMatchObject({ type: "TooManyRequestsError", code: 429 });
    client.abort();
    await running;
    await until(() => server.openLeases() === 0, "the first request is over");
    expect((await server.post({ ...HELLO, max_tokens: 2, n: 3 })).status).toBe(200);
  });
});
