/** A stream joins to the plain answer for any output, tokens and chunks. */
import { fc, test } from "@fast-check/vitest";
import { expect } from "vitest";
import { joinChoice, readEvents, spelled, tokenizer, useChatServer, type ChatServerOptions } from "./support.ts";
import { randomCases } from "../../support/random-cases.ts";

let said: readonly (readonly number[])[] = [[]];
let pauses: readonly number[] = [0];
const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const options: ChatServerOptions = {
  contextLength: 4000,
  says: ({ params }) => said[Number(params.seed % BigInt(said.length))]!,
  // The number of tokens in a chunk depends on their timing.
  before: async ({ verb, detail }) => {
    if (verb !== "sampleToken") return;
    for (let turn = pauses[(detail as number) % pauses.length]!; turn > 0; turn--) await turnOfTheLoop();
  },
};

const CALL = '<tool_call>{"name": "add", "arguments": {"a": [1, "é"]}}</tool_call>';
const piece = fc.constantFrom(
  "the ",
  "naïve ",
  "🦊",
  "日本",
  "👩‍👩‍👧",
  "e\u0301",
  "<think>",
  "</think>",
  "<tool_call>",
  CALL,
  "END",
  "\n\n",
  "<|user|>",
  "a",
);
/** Words encoded normally or letter by letter, and random tokens, including parts of characters. */
const output = fc
  .array(
    fc.oneof(
      { arbitrary: piece.map((text) => [...tokenizer.encode(text)]), weight: 3 },
      { arbitrary: piece.map(spelled), weight: 3 },
      { arbitrary: fc.nat(tokenizer.vocabularySize - 1).map((id) => [id]), weight: 2 },
    ),
    { maxLength: 8 },
  )
  .map((parts) => parts.flat());
const stop = fc.oneof(
  fc.constantFrom("END", "the", "🦊", "é", "e\u0301", "\ufffd", "tool", "</think>", " ", "\n\n"),
  fc.string({ unit: "grapheme", minLength: 1, maxLength: 2 }),
);
const request = fc.record(
  {
    stop: fc.oneof(stop, fc.array(stop, { maxLength: 3 })),
    include_stop_str_in_output: fc.boolean(),
    skip_special_tokens: fc.boolean(),
    min_tokens: fc.nat(3),
    max_tokens: fc.integer({ min: 4, max: 40 }),
    ignore_eos: fc.boolean(),
    tools: fc.constant([{ type: "function", function: { name: "add" } }]),
    parallel_tool_calls: fc.boolean(),
    include_reasoning: fc.boolean(),
    logprobs: fc.boolean(),
    stop_token_ids: fc.array(fc.nat(300), { maxLength: 2 }),
    repetition_detection: fc.constant({ max_pattern_size: 2, min_count: 3 }),
  },
  { requiredKeys: [] },
);
const ADD = { type: "function", function: { name: "add" } };
/** Fields that force tool calls, with matching outputs and some other outputs. */
const forced = fc.oneof(
  { arbitrary: fc.constant({ fields: {}, says: [] as string[] }), weight: 3 },
  {
    arbitrary: fc
      .array(
        fc.array(
          fc.record({ name: fc.constant("add"), parameters: fc.dictionary(fc.constantFrom("a", "}"), fc.jsonValue(), { maxKeys: 2 }) }),
          { maxLength: 3 },
        ),
        {
          minLength: 1,
          maxLength: 2,
        },
      )
      .map((texts) => ({ fields: { tools: [ADD], tool_choice: "required" }, says: texts.map((calls) => JSON.stringify(calls)) })),
    weight: 2,
  },
  {
    arbitrary: fc.jsonValue().map((value) => ({ fields: { tools: [ADD], tool_choice: ADD }, says: [JSON.stringify({ value })] })),
    weight: 1,
  },
);
const prompt = fc.oneof(
  fc.record({
    messages: fc.array(piece, { minLength: 1, maxLength: 2 }).map((texts) => texts.map((content) => ({ role: "user", content }))),
  }),
  piece.map((content) => ({
    messages: [
      { role: "user", content: "hi" },
      { role: "assistant", content: `so ${content}.` },
    ],
    continue_final_message: true,
    add_generation_prompt: false,
    echo: true,
    prompt_logprobs: null,
  })),
);

const { server: plain } = await useChatServer(options);
const { server: thinking } = await useChatServer({ ...options, limits: { reasoningParser: "think" } });
test.prop(
  [
    fc.array(output, { minLength: 1, maxLength: 3 }),
    request,
    prompt,
    fc.array(fc.nat(2), { minLength: 1, maxLength: 5 }),
    fc.boolean(),
    forced,
  ],
  { numRuns: randomCases(60) },
)("a stream joins to the plain answer", async (sampled, given, conversation, times, isThinking, { fields: forcing, says }) => {
  // A constrained engine produces complete calls; only the plain answer returns calls cut by a stop string or a limit as content.
  const isForced = says.length > 0;
  const { include_reasoning, logprobs: asksLogprobs } = given;
  const fields = isForced ? { include_reasoning, logprobs: asksLogprobs, ...forcing, max_tokens: 1000 } : given;
  const outputs = isForced ? says.map(spelled) : sampled;
  const server = isThinking ? thinking : plain;
  [said, pauses] = [outputs, times];
  const body = { ...conversation, ...fields, n: outputs.length, seed: 0, max_tokens: fields.max_tokens ?? 30, return_token_ids: true };
  const whole = await server.complete(body);
  const { chunks, isDone } = await readEvents(await server.post({ ...body, stream: true, stream_options: { include_usage: true } }));
  expect(isDone).toBe(true);
  for (const { index, message, logprobs, token_ids, finish_reason, stop_reason } of whole.choices) {
    const streamed = joinChoice(chunks, index);
    expect(streamed).toMatchObject({
      content: message.content ?? "",
      tokenIds: token_ids,
      finishes: [finish_reason],
      stopReason: stop_reason,
    });
    expect(streamed.parts.map((part) => part.delta.reasoning ?? "").join("")).toBe(message.reasoning ?? "");
    expect(streamed.logprobs).toEqual(logprobs?.content ?? []);
    expect(streamed.toolCalls.map((call) => call.function)).toEqual(message.tool_calls.map((call: any) => call.function));
  }
  const { prompt_tokens_details: _, ...usage } = whole.usage;
  expect(chunks.at(-1).usage).toMatchObject(usage);
});
