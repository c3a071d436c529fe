/** Fields that determine the prompt. */
import { describe, expect, it } from "vitest";
import { CONTEXT, HELLO, joinChoice, promptIds, readEvents, tokenizer, useChatServer } from "./support.ts";

const { server, start, refusal } = await useChatServer();
/** Returns the prompt of `body` as the engine received it. */
async function promptOf(body: object, target = server): Promise<string> {
  const { prompt_token_ids, usage } = await target.complete({ ...HELLO, return_token_ids: true, ...body });
  expect(usage.prompt_tokens).toBe(prompt_token_ids.length);
  return tokenizer.decode(prompt_token_ids);
}
const CONVERSATION = [
  { role: "user", content: "hi" },
  { role: "assistant", content: "Well, " },
];
const CONTINUE = { continue_final_message: true, add_generation_prompt: false };

describe("the end of the prompt", () => {
  it("68: ends with the assistant header, the end of the last turn, or the text of the last turn", async () => {
    expect(await promptOf({})).toBe("<|user|>hi<|end|><|assistant|>");
    expect(await promptOf({ add_generation_prompt: false })).toBe("<|user|>hi<|end|>");
    expect(await promptOf({ ...CONTINUE, messages: CONVERSATION })).toBe("<|user|>hi<|end|><|assistant|>Well, ");
  });
  it("67: rejects continue_final_message with add_generation_prompt", async () => {
    const refused = (body: object) => refusal({ ...body, messages: CONVERSATION });
    const both = { continue_final_message: true, add_generation_prompt: true };
    expect(await refused(both)).toMatchObject({ status: 400, type: "Bad Request", param: null });
    expect(await refused({ continue_final_message: true })).toMatchObject({ status: 400, type: "BadRequestError", param: null });
  });
  it("continues text parts and turns of any role, also if they contain special text", async () => {
    const messages = [{ role: "user", content: [{ type: "text", text: "a" }, "b<|end|>c"] }];
    expect(await promptOf({ ...CONTINUE, messages })).toBe("<|user|>a\nb<|end|>c");
  });
  it("the answer has the role of the last message if no new turn is opened", async () => {
    const body = { ...HELLO, messages: [{ role: "narrator", content: "so" }], add_generation_prompt: false };
    expect((await server.complete(body)).choices[0].message.role).toBe("narrator");
    expect(joinChoice((await readEvents(await server.post({ ...body, stream: true }))).chunks).role).toBe("narrator");
    expect((await server.complete({ ...body, add_generation_prompt: true })).choices[0].message.role).toBe("assistant");
  });
  it("keeps the sampled token ids of a continued turn in the next request", async () => {
    const first = await server.complete({ ...CONTINUE, messages: CONVERSATION, return_token_ids: true });
    const whole = `Well, ${first.choices[0].message.content}`;
    const next = await server.complete({
      messages: [CONVERSATION[0], { role: "assistant", content: whole }, { role: "user", content: "go on" }],
      return_token_ids: true,
    });
    const known = [...first.prompt_token_ids, ...first.choices[0].token_ids];
    expect(next.prompt_token_ids.slice(0, known.length)).toEqual(known);
  });
});

describe("templates", () => {
  const echoing = "{{ documents[0].title if documents else '' }}|{{ mood }}|{{ reasoning_effort }}|{{ messages[0].content }}";

  it("70: rejects a chat template in the request if such templates are not trusted, also in chat_template_kwargs", async () => {
    for (const body of [{ chat_template: "" }, { chat_template: echoing }, { chat_template_kwargs: { chat_template: echoing } }])
      expect(await refusal(body)).toMatchObject({
        status: 400,
        type: "BadRequestError",
        message: expect.stringContaining("chat_template"),
      });
    await server.complete({ ...HELLO, chat_template: null, chat_template_kwargs: { chat_template: null } });
  });
  it("70, 71: renders a trusted template with the variables of the request", async () => {
    const trusting = await start({ limits: { trustRequestTemplates: true } });
    const body = { chat_template: echoing, chat_template_kwargs: { mood: "good", documents: [{ title: "no" }] } };
    expect(await promptOf(body, trusting)).toBe("no|good||hi");
    expect(await promptOf({ ...body, documents: [{ title: "mine" }], reasoning_effort: "low" }, trusting)).toBe("mine|good|low|hi");
    expect(await promptOf({ chat_template_kwargs: { chat_template: "={{ messages[0].content }}" } }, trusting)).toBe("=hi");
  });
  it("answers 400 if a template throws, does not parse or exceeds its limits", async () => {
    const trusting = await start({ limits: { trustRequestTemplates: true } });
    for (const chat_template of ["{{ raise_exception('no') }}", "{% if %}", "{% for a in range(10000000) %}x{% endfor %}", ""])
      expect(await refusal({ chat_template }, trusting), chat_template).toMatchObject({ status: 400, type: "BadRequestError" });
    // The cause of an exception may be any field that the template reads.
    expect(await refusal({ chat_template: "{{ raise_exception('no') }}" }, trusting)).toMatchObject({ param: null });
    expect(await refusal({ ...CONTINUE, messages: CONVERSATION, chat_template: "nothing of it" }, trusting)).toMatchObject({
      status: 400,
      param: "continue_final_message",
    });
  });
  it("continues a turn without the trailing space that the template trims", async () => {
    const trusting = await start({ limits: { trustRequestTemplates: true } });
    const chat_template = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}";
    expect(await promptOf({ ...CONTINUE, messages: CONVERSATION, chat_template }, trusting)).toBe("[hi][Well,");
  });
  it("71: variables that the template does not use have no effect, and none replaces the conversation", async () => {
    const plain = await promptOf({});
    const kwargs = { thinking: true, messages: [{ role: "user", content: "other" }], add_generation_prompt: false };
    expect(await promptOf({ documents: [{ title: "a" }], chat_template_kwargs: kwargs, reasoning_effort: "high" })).toBe(plain);
    expect(await promptOf({ add_special_tokens: true })).toBe(plain);
  });
});

describe("the prompt in the answer", () => {
  it("9: returns log-probabilities of the prompt, with null for the first token; omitted means null", async () => {
    const ids = promptIds(HELLO.messages);
    for (const count of [0, 1, 3]) {
      const { prompt_logprobs } = await server.complete({ ...HELLO, n: 2, prompt_logprobs: count });
      expect(prompt_logprobs).toHaveLength(ids.length);
      const [first, ...rest] = prompt_logprobs;
      expect(first).toBeNull();
      for (const [at, entry] of rest.entries()) {
        const id = ids[at + 1]!;
        expect(entry[id]).toEqual({ logprob: -0.5, rank: 1, decoded_token: tokenizer.tokenText(id) });
        expect(Object.keys(entry)).toHaveLength(Math.max(1, count));
      }
    }
    expect((await server.complete(HELLO)).prompt_logprobs).toBeNull();
    const scored = server.engine.calls.filter(
      ({ verb, detail }) => verb === "sample" && (detail as any).params.promptLogprobs !== undefined,
    );
    expect(scored, "one choice of each request").toHaveLength(3);
  });
  it("9: rejects prompt_logprobs above the bound, and in a stream", async () => {
    for (const prompt_logprobs of [-1, 21])
      expect(await refusal({ prompt_logprobs })).toMatchObject({ status: 400, type: "BadRequestError", param: "prompt_logprobs" });
    for (const prompt_logprobs of [-1, 1])
      expect(await refusal({ prompt_logprobs, stream: true })).toMatchObject({
        status: 400,
        type: "Bad Request",
        param: "prompt_logprobs",
      });
    const { chunks } = await readEvents(await server.post({ ...HELLO, prompt_logprobs: 0, stream: true }));
    for (const chunk of chunks) expect(chunk).not.toHaveProperty("prompt_logprobs");
  });
  it("66: echo puts the continued text before the answer", async () => {
    const body = { ...CONTINUE, messages: CONVERSATION, echo: true };
    const { choices, prompt_logprobs } = await server.complete(body);
    expect(choices[0].message).toMatchObject({ role: "assistant", content: "Well, hello" });
    expect(prompt_logprobs[1]).toBeTypeOf("object");
    const { chunks } = await readEvents(
      await server.post({ ...body, n: 2, stream: true, stream_options: { continuous_usage_stats: true } }),
    );
    for (const index of [0, 1]) expect(joinChoice(chunks, index)).toMatchObject({ content: "Well, hello", finishes: ["stop"] });
    expect(chunks.slice(0, 4).map(({ choices: [{ index, delta }], usage }) => [index, delta.content, usage.completion_tokens])).toEqual([
      [0, "", 0],
      [1, "", 0],
      [0, "Well, ", 0],
      [1, "Well, ", 0],
    ]);
    expect((await server.complete({ ...body, echo: false })).choices[0].message.content).toBe("hello");
  });
  it("66: does not echo a message of another role", async () => {
    const { choices, prompt_logprobs } = await server.complete({ ...HELLO, echo: true, logprobs: true, top_logprobs: 2 });
    expect(choices[0].message.content).toBe("hello");
    expect(Object.keys(prompt_logprobs[1])).toHaveLength(2);
  });
});

describe("truncation", () => {
  const prompt = promptIds(HELLO.messages);
  it("keeps the end of the prompt", async () => {
    const { prompt_token_ids } = await server.complete({ ...HELLO, truncate_prompt_tokens: 2, return_token_ids: true });
    expect(prompt_token_ids).toEqual(prompt.slice(-2));
    expect((await server.complete({ ...HELLO, truncate_prompt_tokens: 50 })).usage.prompt_tokens).toBe(prompt.length);
  });
  it("-1 keeps the tokens that fit with the output; without an output limit it is rejected", async () => {
    const long = { messages: [{ role: "user", content: "word ".repeat(200) }], truncate_prompt_tokens: -1 };
    expect((await server.complete({ ...long, max_tokens: 5 })).usage.prompt_tokens).toBe(CONTEXT - 5);
    expect(await refusal(long)).toMatchObject({ status: 400, param: "max_tokens" });
    expect(await refusal({ ...long, truncate_prompt_tokens: null, max_tokens: 5 })).toMatchObject({ status: 400, param: "input_tokens" });
  });
  it("rejects 0, values that do not fit, and integers beyond 64 bits", async () => {
    for (const truncate_prompt_tokens of [0, CONTEXT + 1])
      expect(await refusal({ truncate_prompt_tokens })).toMatchObject({
        status: 400,
        type: "BadRequestError",
        param: "truncate_prompt_tokens",
      });
    expect(await refusal({ truncate_prompt_tokens: CONTEXT - 4, max_tokens: 5 })).toMatchObject({ param: "truncate_prompt_tokens" });
    expect(await refusal({ max_tokens: CONTEXT + 1, truncate_prompt_tokens: 1 })).toMatchObject({ param: "max_tokens" });
    const response = await server.post('{"messages":[{"role":"user","content":"hi"}],"truncate_prompt_tokens":9223372036854775808}');
    expect(((await response.json()) as any).error.type).toBe("Bad Request");
  });
  it("does not reuse sampled ids after a truncated prompt", async () => {
    const messages = [{ role: "user", content: "cut me off" }];
    const first = await server.complete({ messages, truncate_prompt_tokens: 2 });
    const again = [...messages, { role: "assistant", content: first.choices[0].message.content }, { role: "user", content: "and?" }];
    expect((await server.complete({ messages: again, return_token_ids: true })).prompt_token_ids).toEqual(promptIds(again));
  });
});

describe("tool calls", () => {
  it("79: returns only the first call if parallel_tool_calls is false, streamed or not", async () => {
    const call = (name: string) => `<tool_call>{"name": "${name}", "arguments": {}}</tool_call>`;
    const target = await start({ says: call("a") + call("b"), contextLength: 4000 });
    const tools = ["a", "b"].map((name) => ({ type: "function", function: { name } }));
    for (const [parallel_tool_calls, names] of [
      [false, ["a"]],
      [true, ["a", "b"]],
    ] as const) {
      const body = { ...HELLO, tools, parallel_tool_calls };
      const { choices } = await target.complete(body);
      expect(choices[0].message.tool_calls.map((each: any) => each.function.name)).toEqual(names);
      expect(choices[0].finish_reason).toBe("tool_calls");
      const { toolCalls } = joinChoice((await readEvents(await target.post({ ...body, stream: true }))).chunks);
      expect(toolCalls.map((each) => each.function.name)).toEqual(names);
    }
  });
  it("94: reasoning is null for any include_reasoning without a reasoning parser", async () => {
    for (const include_reasoning of [true, false])
      expect((await server.complete({ ...HELLO, include_reasoning })).choices[0].message.reasoning).toBeNull();
  });
});
