/** Numbered conformance cases of chat semantics. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { choiceSeed } from "../../../src/service/chat/generate/admit.ts";
import { CONTEXT, END, HELLO, joinChoice, promptIds, readEvents, tokenizer, useChatServer, type ChatServer } from "./support.ts";

/** The output of the engine depends on the seed, so that only equal seeds give equal outputs. */
const bySeed = ({ params }: { params: { seed: bigint } }): string => `word ${params.seed % 1000n} end`;

const { server, start, refusal, lastParams } = await useChatServer({ says: bySeed });
describe("logprobs", () => {
  it("1: logprobs false gives null", async () => {
    expect((await server.complete({ ...HELLO, logprobs: false })).choices[0].logprobs).toBeNull();
  });
  it("2: logprobs true without alternatives lists every token, including the stop token", async () => {
    const { choices, usage } = await server.complete({ ...HELLO, logprobs: true, top_logprobs: 0, seed: 1 });
    const { content } = choices[0].logprobs;
    expect(content).toHaveLength(usage.completion_tokens);
    expect(content.at(-1).token).toBe("<|end|>");
    expect(content.every((entry: any) => entry.top_logprobs.length === 0 && entry.logprob === -0.5)).toBe(true);
    expect(content.map((entry: any) => entry.token).join("")).toBe(`${choices[0].message.content}<|end|>`);
    expect(Object.keys(choices[0].logprobs)).toEqual(["content"]);
  });
  it("3: top_logprobs 5 lists five alternatives for each token", async () => {
    const { choices } = await server.complete({ ...HELLO, logprobs: true, top_logprobs: 5, temperature: 0 });
    expect(choices[0].logprobs.content.every((entry: any) => entry.top_logprobs.length === 5)).toBe(true);
  });
  it("4, 5: rejects too many alternatives, streamed or not, and continues to serve", async () => {
    expect(await refusal({ logprobs: true, top_logprobs: 30 })).toMatchObject({ status: 400, type: "BadRequestError", param: "logprobs" });
    expect(await refusal({ logprobs: true, top_logprobs: 21, stream: true })).toMatchObject({ status: 400, param: "logprobs" });
    await server.complete(HELLO);
  });
  it("6, 7: rejects top_logprobs without logprobs, and below -1", async () => {
    expect(await refusal({ top_logprobs: 3 })).toMatchObject({ status: 400, type: "Bad Request", param: "top_logprobs", code: 400 });
    expect(await refusal({ logprobs: true, top_logprobs: -2 })).toMatchObject({ status: 400, param: "top_logprobs" });
  });
  it("8: rejects -1, the whole vocabulary, at the default bound", async () => {
    expect(await refusal({ logprobs: "true", top_logprobs: -1 })).toMatchObject({
      status: 400,
      param: "logprobs",
      message: expect.stringContaining(String(tokenizer.vocabularySize)),
    });
  });
  it("8: -1 lists the whole vocabulary if the bounds allow it", async () => {
    const wide = await start({
      limits: { maxTopLogprobs: 1e6 },
      wrap: (engine) => ({ ...engine, capabilities: () => ({ ...engine.capabilities(), maxTopLogprobs: 1e6 }) }),
    });
    const { choices } = await wide.complete({ ...HELLO, logprobs: "true", top_logprobs: -1, max_tokens: 1 });
    expect(choices[0].logprobs.content[0].top_logprobs).toHaveLength(tokenizer.vocabularySize);
  });
  it("12: lists the sampled token first, even if it is not among the most likely", async () => {
    const [first, second, third] = tokenizer.encode("abc");
    const rare = await start({
      wrap: (engine) => ({
        ...engine,
        async *sample() {
          yield {
            id: third!,
            logprob: -Infinity,
            top: [
              { id: first!, logprob: -0.1 },
              { id: second!, logprob: -3 },
            ],
            finish: "length" as const,
          };
        },
      }),
    });
    const { choices } = await rare.complete({ ...HELLO, logprobs: true, top_logprobs: 2 });
    const [entry] = choices[0].logprobs.content;
    expect(entry.top_logprobs.map((top: any) => [top.token, top.logprob])).toEqual([
      ["c", -9999],
      ["a", -0.1],
    ]);
    expect(entry.logprob).toBe(-9999);
  });
  it("a null top_logprobs turns log-probabilities off", async () => {
    expect((await server.complete({ ...HELLO, logprobs: true, top_logprobs: null })).choices[0].logprobs).toBeNull();
  });
});

describe("length", () => {
  it("13: max_completion_tokens ends the output with length, and usage adds up", async () => {
    const { choices, usage } = await server.complete({ ...HELLO, max_completion_tokens: 5, seed: 999 });
    expect(choices[0]).toMatchObject({ finish_reason: "length", stop_reason: null, message: { role: "assistant" } });
    const prompt = promptIds(HELLO.messages).length;
    expect(usage).toEqual({ prompt_tokens: prompt, completion_tokens: 5, total_tokens: prompt + 5, prompt_tokens_details: null });
  });
  it("14: max_completion_tokens takes precedence over max_tokens", async () => {
    expect((await server.complete({ ...HELLO, max_completion_tokens: 3, max_tokens: 9 })).usage.completion_tokens).toBe(3);
    expect((await server.complete({ ...HELLO, max_completion_tokens: null, max_tokens: "2" })).usage.completion_tokens).toBe(2);
  });
  it("15: rejects a limit of 0 or less", async () => {
    expect(await refusal({ max_tokens: 0 })).toMatchObject({ status: 400, type: "BadRequestError", param: "max_tokens" });
    expect(await refusal({ max_tokens: -4 })).toMatchObject({ status: 400, param: "max_tokens" });
  });
  it("16: without a limit uses the rest of the context", async () => {
    await server.complete(HELLO);
    expect(lastParams().maxTokens).toBe(CONTEXT - promptIds(HELLO.messages).length);
  });
  it("18, 19: rejects a prompt and limit that exceed the context", async () => {
    const room = CONTEXT - promptIds(HELLO.messages).length;
    expect(await refusal({ max_tokens: room + 1 })).toMatchObject({
      status: 400,
      param: "input_tokens",
      message: expect.stringContaining("maximum context length"),
    });
    expect(await refusal({ max_tokens: CONTEXT + 1 })).toMatchObject({
      status: 400,
      param: "max_tokens",
      message: expect.stringContaining("context length"),
    });
    expect(await refusal({ max_completion_tokens: CONTEXT + 1 })).toMatchObject({ param: "max_completion_tokens" });
    await server.complete({ ...HELLO, max_tokens: room });
    const full = await start({ contextLength: promptIds(HELLO.messages).length });
    expect(await refusal({ max_tokens: 1 }, full)).toMatchObject({ status: 400, param: "input_tokens" });
    expect(await refusal({}, full)).toMatchObject({ status: 400, param: "max_tokens" });
  });
});

describe("model", () => {
  it("20: an empty, null or absent model is the default model", async () => {
    for (const model of ["", null, undefined]) expect((await server.complete({ ...HELLO, model })).model).toBe("whetstone-tiny");
  });
  it("20: the response names the checkpoint of a model name", async () => {
    expect((await server.complete({ ...HELLO, model: "demo/chat/reverse" })).model).toBe("demo/chat/reverse:step7");
    const { chunks } = await readEvents(await server.post({ ...HELLO, model: "demo/chat/reverse", stream: true }));
    expect(new Set(chunks.map((chunk) => chunk.model))).toEqual(new Set(["demo/chat/reverse:step7"]));
  });
  it("21: an unknown model is answered with 404 and its name", async () => {
    expect(await refusal({ model: "nobody/knows/this" })).toEqual({
      status: 404,
      type: "NotFoundError",
      param: "model",
      code: 404,
      error_code: "E_NOT_FOUND",
      message: "The model 'nobody/knows/this' does not exist",
    });
    expect(server.openLeases()).toBe(0);
  });
});

describe("messages", () => {
  it("22: unknown fields are accepted, and logged once if they are in the body", async () => {
    await server.complete({ ...HELLO, fancy: 1, messages: [{ role: "user", content: "hi", mood: "good" }] });
    await server.complete({ ...HELLO, fancy: 2 });
    expect(server.log.filter((line) => (line.fields as any)?.field === "fancy")).toHaveLength(1);
  });
  it("22: unknown keys in messages, tools and stream options are accepted and logged once", async () => {
    const fresh = await start({});
    const answer = (await fresh.complete(HELLO)).choices[0].message;
    const tools = [{ type: "function", colour: "red", function: { name: "f", strict: true } }];
    const body = { messages: [{ role: "user", content: "hi", mood: "good" }, answer, ...HELLO.messages], tools, tool_choice: "none" };
    for (let turn = 0; turn < 2; turn++) {
      const response = await fresh.post({ ...body, stream: true, stream_options: { include_usage: true, pace: 1 } });
      expect(response.status).toBe(200);
      await response.text();
    }
    expect(fresh.log.map((line) => (line.fields as { field?: string }).field)).toEqual([
      "messages.mood",
      "tools.colour",
      "tools.function.strict",
      "stream_options.pace",
    ]);
  });
  it("23, 24: text parts are equivalent to a string, also in custom roles", async () => {
    for (const role of ["user", "narrator"]) {
      const asked = { return_token_ids: true, max_tokens: 1 };
      const plain = await server.complete({ ...asked, messages: [{ role, content: "hi\nyou" }] });
      const parts = await server.complete({
        ...asked,
        messages: [{ role, content: [{ type: "text", text: "hi" }, { type: "text", text: null }, "you"] }],
      });
      expect(parts.prompt_token_ids).toEqual(plain.prompt_token_ids);
    }
  });
  it("27: accepts an empty system text; rejects an image with its type", async () => {
    await server.complete({ messages: [{ role: "system", content: "" }, ...HELLO.messages] });
    expect(await refusal({ messages: [{ role: "system", content: [{ type: "image_url", image_url: { url: "x" } }] }] })).toMatchObject({
      status: 400,
      type: "BadRequestError",
      message: expect.stringContaining("image_url"),
    });
  });
  it("accepts null content only in assistant and function messages", async () => {
    expect(await refusal({ messages: [{ role: "user", content: null }] })).toMatchObject({
      status: 400,
      type: "Bad Request",
      param: null,
      message: expect.stringContaining("messages.0.content"),
    });
    await server.complete({
      messages: [...HELLO.messages, { role: "assistant", content: null }, { role: "function", name: "f", content: null }, { role: "user" }],
    });
  });
  it.each([
    ["nothing", undefined],
    ["null", null],
    ["an object", {}],
    ["an empty array", []],
    ["a string in the array", ["hi"]],
    ["a message without a role", [{ content: "hi" }]],
    ["a number as content", [{ role: "user", content: 5 }]],
    ["a part without a kind", [{ role: "user", content: [{ colour: "red" }] }]],
    ["a part whose text is no text", [{ role: "user", content: [{ type: "text", text: 5 }] }]],
  ])("rejects %s for messages", async (_, messages) => {
    expect(await refusal({ messages })).toMatchObject({ status: 400, code: 400 });
  });
  it("80: empty arguments of a previous tool call are accepted, and invalid JSON is rejected", async () => {
    const history = (args: unknown) => ({
      messages: [
        ...HELLO.messages,
        { role: "assistant", content: null, tool_calls: [{ id: "1", type: "function", function: { name: "add", arguments: args } }] },
        { role: "tool", tool_call_id: "1", content: "3" },
      ],
    });
    for (const args of ["", "{}", undefined, '{"a":1}']) await server.complete(history(args));
    expect(await refusal(history("{a"))).toMatchObject({ status: 400, type: "BadRequestError" });
  });
});

describe("seed and n", () => {
  it("25: reads seeds from their digits, without rounding", async () => {
    for (const seed of ["9223372036854775808", "-9223372036854775809", "1e19"]) {
      const response = await server.post(`{"messages":[{"role":"user","content":"\\"seed\\": 1"}],"\\u0073eed":${seed}}`);
      expect(response.status).toBe(400);
      expect(((await response.json()) as any).error).toMatchObject({
        type: "Bad Request",
        param: null,
        message: expect.stringMatching(/greater_than_equal|less_than_equal/),
      });
    }
    for (const seed of ["9223372036854775807", "-9223372036854775808", '"9223372036854775807"', "9007199254740993", "3.0", "true"]) {
      await server.complete(`{"seed" : 0, "messages":[{"role":"user","content":"hi"}],"seed" : ${seed} ,"n":1}`);
      expect(lastParams().seed).toBe({ "3.0": 3n, true: 1n }[seed] ?? BigInt(seed.replaceAll('"', "")));
    }
  });
  it("26: the same seed gives the same answer, and another seed another answer", async () => {
    const say = async (seed: number) => (await server.complete({ ...HELLO, seed })).choices[0].message.content;
    expect(await say(42)).toBe(await say(42));
    expect(await say(43)).not.toBe(await say(42));
  });
  it("a missing, null or -1 seed is replaced by a random one", async () => {
    const seeds = new Set<bigint>();
    for (const seed of [undefined, null, -1]) {
      await server.complete({ ...HELLO, seed });
      seeds.add(lastParams().seed);
    }
    expect(seeds.size).toBe(3);
    expect(seeds.has(-1n)).toBe(false);
  });
  it("31, 33: returns choices in order, each with its own seed", async () => {
    const { choices, usage } = await server.complete({ ...HELLO, n: 3, seed: 42, temperature: 0.7, return_token_ids: true });
    expect(choices.map((choice: any) => choice.index)).toEqual([0, 1, 2]);
    expect(choices[1].message.content).toBe((await server.complete({ ...HELLO, seed: 43 })).choices[0].message.content);
    expect(new Set(choices.map((choice: any) => choice.message.content)).size).toBe(3);
    expect(usage.completion_tokens).toBe(choices.flatMap((choice: any) => choice.token_ids).length);
  });
  it("the seeds of choices wrap around at 64 bits", () => {
    expect(choiceSeed(2n ** 63n - 1n, 1)).toBe(-(2n ** 63n));
  });
  it("32: streams content and one finish reason for each choice", async () => {
    const { chunks, isDone } = await readEvents(await server.post({ ...HELLO, n: 2, seed: 42, stream: true }));
    expect(isDone).toBe(true);
    for (const index of [0, 1])
      expect(joinChoice(chunks, index)).toMatchObject({ role: "assistant", content: `word ${42 + index} end`, finishes: ["stop"] });
  });
  it("34: rejects n 0, n over the bound, and n 2 with greedy sampling", async () => {
    expect(await refusal({ n: 0 })).toMatchObject({ status: 400, type: "BadRequestError" });
    expect(await refusal({ n: 1e9 })).toMatchObject({ status: 400, message: expect.stringContaining("from 1 to 128") });
    expect(await refusal({ n: 2, temperature: 0 })).toMatchObject({
      status: 400,
      message: expect.stringContaining("n` must be 1 when using greedy sampling"),
    });
  });
});

describe("sampling numbers", () => {
  it("35: are rejected outside their ranges", async () => {
    expect(await refusal({ temperature: -1 })).toMatchObject({ status: 400, type: "BadRequestError", param: "temperature" });
    for (const top_p of [0, 1.1, -1]) expect(await refusal({ top_p })).toMatchObject({ status: 400, param: "top_p" });
    expect(await refusal({ top_k: -2 })).toMatchObject({ status: 400, type: "BadRequestError" });
  });
  it("reach the engine as numbers", async () => {
    await server.complete({ ...HELLO, temperature: "0.5", top_p: "0.9", top_k: 7.0 });
    expect(lastParams()).toMatchObject({ temperature: 0.5, topP: 0.9, topK: 7, stopTokenIds: [END] });
    await server.complete({ ...HELLO, temperature: true, top_k: -1 });
    expect(lastParams()).toMatchObject({ temperature: 1, topP: 1, topK: 0 });
    await server.complete({ ...HELLO, top_k: 1e6 });
    expect(lastParams().topK).toBe(0);
  });
  it("temperature 0 is greedy with other sampling off; a tiny one is raised to 0.01", async () => {
    await server.complete({ ...HELLO, temperature: 0, top_p: 0.5, top_k: 3 });
    expect(lastParams()).toMatchObject({ temperature: 0, topP: 1, topK: 0 });
    await server.complete({ ...HELLO, temperature: 1e-6 });
    expect(lastParams().temperature).toBe(0.01);
  });
  it("36: use the model's generation config as defaults", async () => {
    const directory = await mkdtemp(join(tmpdir(), "chat-defaults-"));
    try {
      await writeFile(
        join(directory, "generation_config.json"),
        JSON.stringify({ temperature: 0.5, top_p: 0.8, top_k: 5, max_new_tokens: 4, repetition_penalty: 1.1, min_p: 0.2 }),
      );
      const configured = await start({ directory });
      await configured.complete(HELLO);
      expect(lastParams(configured)).toMatchObject({
        temperature: 0.5,
        topP: 0.8,
        topK: 5,
        maxTokens: 4,
        repetitionPenalty: 1.1,
        minP: 0.2,
      });
      await configured.complete({ ...HELLO, temperature: 0, max_tokens: 9, repetition_penalty: 1, min_p: 0.3 });
      expect(lastParams(configured)).toMatchObject({ temperature: 0, maxTokens: 9, minP: 0.3 });
      expect(lastParams(configured)).not.toHaveProperty("repetitionPenalty");
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});

describe("request", () => {
  it("29: takes the id from the header, then from the body, else creates one", async () => {
    expect((await server.complete({ ...HELLO, request_id: "abc" })).id).toBe("chatcmpl-abc");
    expect((await server.complete({ ...HELLO, request_id: "abc" }, { headers: { "x-request-id": "xyz" } })).id).toBe("chatcmpl-xyz");
    expect((await server.complete(HELLO)).id).toMatch(/^chatcmpl-[0-9a-f]{16}$/);
  });
  it("30: rejects malformed bodies and other media types", async () => {
    for (const body of ["", "{", "[]", "null", '"text"', "5"]) {
      const response = await server.post(body);
      expect(response.status, body).toBe(400);
      expect(((await response.json()) as any).error, body).toMatchObject({ type: "Bad Request", param: null, code: 400 });
    }
    for (const type of ["text/plain", "application/jsonp"])
      expect((await server.post(HELLO, { headers: { "content-type": type } })).status).toBe(400);
    await server.complete(HELLO, { headers: { "content-type": "Application/JSON; charset=utf-8" } });
  });
  it("30: answers deeply nested bodies without a server error", async () => {
    const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
    for (const where of [
      '"tools":[{"type":"function","function":{"name":"f","parameters":{"a":DEEP}}}]',
      '"stop":DEEP',
      '"chat_template_kwargs":{"a":DEEP}',
      '"fancy":DEEP',
    ]) {
      const response = await server.post(`{"messages":[{"role":"user","content":"hi"}],${where.replace("DEEP", deep)}}`);
      expect([200, 400], where.slice(0, 20)).toContain(response.status);
      await response.text();
    }
    const nested = await server.post(`{"messages":[{"role":"developer","content":"hi","tools":[${deep}]}]}`);
    expect(nested.status).toBe(400);
  });
  it("accepts a trailing slash in the path", async () => {
    expect((await server.post(HELLO, { path: "/v1/chat/completions/" })).status).toBe(200);
  });
  it("86: returns token ids only on request, and they decode to the answer", async () => {
    const { prompt_token_ids, choices } = await server.complete({ ...HELLO, return_token_ids: true });
    expect(prompt_token_ids).toEqual(promptIds(HELLO.messages));
    expect(tokenizer.decode(choices[0].token_ids)).toBe(`${choices[0].message.content}<|end|>`);
    for (const return_token_ids of [false, null, undefined]) {
      const without = await server.complete({ ...HELLO, return_token_ids });
      expect([without.prompt_token_ids, without.choices[0].token_ids]).toEqual([null, null]);
    }
  });
  it("returns every field of the schema, with null for unused fields", async () => {
    const body = await server.complete({ ...HELLO, seed: 5, user: "me" });
    expect(body).toEqual({
      id: expect.any(String),
      object: "chat.completion",
      created: expect.any(Number),
      model: "whetstone-tiny",
      choices: [
        {
          index: 0,
          message: {
            role: "assistant",
            content: "word 5 end",
            refusal: null,
            annotations: null,
            audio: null,
            function_call: null,
            tool_calls: [],
            reasoning: null,
          },
          logprobs: null,
          finish_reason: "stop",
          stop_reason: null,
          token_ids: null,
        },
      ],
      service_tier: null,
      system_fingerprint: null,
      usage: expect.any(Object),
      prompt_logprobs: null,
      prompt_token_ids: null,
      kv_transfer_params: null,
    });
  });
});

describe("failures of the engine", () => {
  const broken = (): Promise<ChatServer> =>
    start({
      before: (call) => {
        if (call.verb === "sampleToken" && call.detail === 1) throw new Error("secret of the engine");
      },
    });
  it("89: answers 500 without details, and logs them", async () => {
    const failing = await broken();
    expect(await refusal({}, failing)).toEqual({
      status: 500,
      type: "InternalServerError",
      message: "Internal server error",
      param: null,
      code: 500,
      error_code: "E_ENGINE",
    });
    expect(JSON.stringify(failing.log)).toContain("secret of the engine");
    expect(failing.openLeases()).toBe(0);
  });
  it("89: ends a stream with an error event and [DONE], without a finish reason", async () => {
    const failing = await broken();
    const response = await failing.post({ ...HELLO, stream: true });
    expect(response.status).toBe(200);
    const { chunks, isDone } = await readEvents(response);
    expect(isDone).toBe(true);
    expect(chunks.at(-1)).toEqual({
      error: { message: "Internal server error", type: "InternalServerError", param: null, code: 500, error_code: "E_ENGINE" },
    });
    expect(joinChoice(chunks).finishes).toEqual([]);
  });
  it("one failing choice aborts the other choices and the request", async () => {
    let ended = 0;
    const failing = await start({
      says: "a b c d e f",
      before: async (call, { signal }) => {
        if (call.verb !== "sampleToken") return;
        if (call.detail === 2 && ended === 0) {
          ended = 1;
          throw new Error("broken");
        }
        if (call.detail === 3) await new Promise((_, reject) => signal!.addEventListener("abort", () => reject(signal!.reason)));
      },
    });
    expect(await refusal({ n: 3 }, failing)).toMatchObject({ status: 500 });
    expect(failing.openLeases()).toBe(0);
  });
});
