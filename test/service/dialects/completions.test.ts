/** Text completions and the routes on tokens. */
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { fileURLToPath } from "node:url";
import type { ChatCompletion, CompletionsAnswer } from "../../../src/base/schema/index.ts";
import { TextCompletionAnswer, type CompletionContext } from "../../../src/dialects/completions/answer.ts";
import { loadTokenizer } from "../../../src/text/tokenizer/index.ts";
import { shippedModel } from "../../clients/support.ts";
import { send } from "./players.ts";

const tokenizer = await loadTokenizer(fileURLToPath(new URL("../../../models/whetstone-tiny", import.meta.url)));
const address = await shippedModel();
const client = new OpenAI({ baseURL: address.baseURL, apiKey: address.apiKey, maxRetries: 0 });
const root = { service: { url: address.baseURL.replace(/\/v1$/u, ""), apiKey: address.apiKey } } as Parameters<typeof send>[0];
const post = async (path: string, body: object): Promise<any> => (await send(root, path, { model: address.model, ...body })).body;
const ask = { model: address.model, seed: 3, max_tokens: 6 };

describe("completions", () => {
  it("continues a text as its token ids, plain and streaming, with the client of OpenAI", async () => {
    const ids = [...tokenizer.encode("one two", { addSpecialTokens: true })];
    const more = { return_token_ids: true } as object;
    const text = await client.completions.create({ ...ask, ...more, prompt: "one two" });
    const tokens = await client.completions.create({ ...ask, ...more, prompt: ids });
    expect(tokens.choices).toEqual(text.choices);
    expect(text.choices[0]).toMatchObject({ index: 0, logprobs: null, prompt_token_ids: ids });
    expect(text.usage).toMatchObject({ prompt_tokens: ids.length });
    let streamed = "";
    let last: OpenAI.Completion | null = null;
    for await (const chunk of await client.completions.create({
      ...ask,
      prompt: "one two",
      stream: true,
      stream_options: { include_usage: true },
    })) {
      streamed += chunk.choices[0]?.text ?? "";
      last = chunk;
    }
    expect(streamed).toBe(text.choices[0]!.text);
    expect(last).toMatchObject({ choices: [], usage: text.usage! });
  });
  it("answers many prompts of one request without a warning of the process", async () => {
    const warnings: string[] = [];
    const onWarning = ({ name }: Error) => void warnings.push(name);
    process.on("warning", onWarning);
    await client.completions.create({ ...ask, max_tokens: 1, prompt: Array.from({ length: 16 }, (_, index) => `${index}`) });
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });
  it("answers several prompts with n choices each, in order, plain and streaming", async () => {
    const prompt = ["one", "two"];
    const { choices, usage } = await client.completions.create({ ...ask, prompt, n: 2 });
    expect(choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    const alone = await Promise.all(prompt.map((each) => client.completions.create({ ...ask, prompt: each, n: 2 })));
    expect(choices.map(({ text }) => text)).toEqual(alone.flatMap((each) => each.choices.map(({ text }) => text)));
    expect(usage!.prompt_tokens).toBe(alone.reduce((sum, each) => sum + each.usage!.prompt_tokens, 0));
    const texts = ["", "", "", ""];
    for await (const chunk of await client.completions.create({ ...ask, prompt, n: 2, echo: true, stream: true }))
      for (const { index, text } of chunk.choices) texts[index] += text;
    expect(texts).toEqual(choices.map(({ text }, index) => prompt[index >> 1]! + text));
  });
  it("is built from completions that finish in any order, and streamed if it is long", async () => {
    const context = { request: { model: "m" }, echoes: null, omitsSample: false } as unknown as CompletionContext;
    const completion = (content: string) =>
      ({
        id: `chatcmpl-${content.slice(0, 1)}`,
        created: 1,
        model: "m",
        choices: [{ index: 0, message: { content }, finish_reason: "length" }],
        usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
      }) as unknown as ChatCompletion;
    for (const [length, kind] of [
      [3, "string"],
      [300_000, "object"],
    ] as const) {
      const answer = new TextCompletionAnswer(context);
      await answer.push(completion("b".repeat(length)), 1);
      await answer.push(completion("a".repeat(length)), 0);
      const body = answer.end();
      expect(typeof body).toBe(kind);
      const { id, choices, usage } = (await new Response(body).json()) as CompletionsAnswer;
      expect([id, choices.map(({ index, text }) => [index, text.slice(0, 1), text.length])]).toEqual([
        "cmpl-a",
        [
          [0, "a", length],
          [1, "b", length],
        ],
      ]);
      expect(usage).toEqual({ prompt_tokens: 2, completion_tokens: 4, total_tokens: 6 });
    }
  });
  it("echoes the prompt with log-probabilities, also without any output", async () => {
    const { choices } = await client.completions.create({ ...ask, prompt: "one two", echo: true, logprobs: 2 });
    const [{ text, logprobs }] = choices as [OpenAI.CompletionChoice];
    expect(logprobs!.tokens!.join("")).toContain("one two");
    expect(logprobs!.token_logprobs![0]).toBeNull();
    expect(logprobs!.text_offset).toEqual(logprobs!.tokens!.map((_, at) => logprobs!.tokens!.slice(0, at).join("").length));
    expect(text.startsWith("one two")).toBe(true);
    const scored = await client.completions.create({ ...ask, prompt: "one two", echo: true, logprobs: 2, max_tokens: 0 });
    const count = scored.usage!.prompt_tokens;
    expect(scored).toMatchObject({ choices: [{ text: "one two", finish_reason: "length" }], usage: { completion_tokens: 0 } });
    expect(scored.choices[0]!.logprobs!.token_logprobs).toEqual(logprobs!.token_logprobs!.slice(0, count));
  });
  it("rejects fields without an equivalent by name", async () => {
    const refusal = async (more: object): Promise<unknown> => (await post("/v1/completions", { prompt: "one", ...more })).error;
    expect(await refusal({ suffix: "end" })).toMatchObject({ param: "suffix", code: 400 });
    expect(await refusal({ best_of: 3 })).toMatchObject({ param: "best_of" });
    expect(await refusal({ tools: [{ type: "function", function: { name: "add" } }] })).toMatchObject({ param: "tools" });
    expect(await refusal({ prompt: [tokenizer.vocabularySize] })).toMatchObject({ param: "prompt" });
    expect(await refusal({ prompt: [] })).toMatchObject({ code: 400 });
    expect(await refusal({ stream: true, echo: true, logprobs: 1 })).toMatchObject({ param: "stream" });
  });
});

describe("token routes", () => {
  it("generates the ids of a chat completion from its prompt, each named by its id", async () => {
    const messages = [{ role: "user", content: "hello" }];
    const shared = { seed: 5, max_tokens: 7 };
    const chat = await post("/v1/chat/completions", { messages, ...shared, return_token_ids: true, logprobs: true });
    const { tokens: ids, count, max_model_len } = await post("/tokenize", { messages });
    expect([ids, count, max_model_len]).toEqual([chat.prompt_token_ids, ids.length, 1024]);
    const { choices, prompt_token_ids } = await post("/inference/v1/generate", {
      token_ids: ids,
      sampling_params: { ...shared, logprobs: 1 },
    });
    expect(prompt_token_ids).toEqual(ids);
    expect(choices[0]).toMatchObject({ token_ids: chat.choices[0].token_ids, finish_reason: chat.choices[0].finish_reason });
    const { content } = choices[0].logprobs;
    expect(content.map(({ token }: any) => token)).toEqual(choices[0].token_ids.map((id: number) => `token_id:${id}`));
    expect(content.map(({ logprob }: any) => logprob)).toEqual(chat.choices[0].logprobs.content.map(({ logprob }: any) => logprob));
  });
  it("rejects streams, features and unknown ids", async () => {
    const refusal = async (more: object): Promise<unknown> => (await post("/inference/v1/generate", { token_ids: [1], ...more })).error;
    expect(await refusal({ stream: true })).toMatchObject({ param: "stream" });
    expect(await refusal({ features: { image: [] } })).toMatchObject({ param: "features" });
    expect(await refusal({ token_ids: [-1] })).toMatchObject({ param: "prompt" });
    expect(await refusal({ sampling_params: { temperature: -1 } })).toMatchObject({ param: "temperature" });
  });
  it("encodes and decodes", async () => {
    const { tokens, token_strs: texts } = await post("/tokenize", {
      prompt: "naïve 🦊",
      add_special_tokens: false,
      return_token_strs: true,
    });
    expect(tokens).toEqual([...tokenizer.encode("naïve 🦊")]);
    expect(texts).toHaveLength(tokens.length);
    expect(await post("/detokenize", { tokens })).toEqual({ prompt: "naïve 🦊" });
    expect((await post("/tokenize", { prompt: "a", messages: [{ role: "user", content: "a" }] })).error).toMatchObject({ param: "prompt" });
  });
});
