import { expect, it } from "vitest";
import type { ChatCompletionRequest } from "../../src/base/schema/index.ts";
import { samplingOf } from "../../src/base/trajectory/sampling.ts";

const messages = [{ role: "user", content: "q" }];
const tool = { type: "function", function: { name: "add" } };

it.each<readonly [Partial<ChatCompletionRequest>, object]>([
  [{}, {}],
  [{ temperature: 1, top_p: 1, top_k: 0, min_p: 0, frequency_penalty: 0, presence_penalty: 0, repetition_penalty: 1, min_tokens: 0 }, {}],
  [{ top_k: -1, logit_bias: {}, bad_words: [], response_format: { type: "text" }, tool_choice: "auto", tools: [tool as never] }, {}],
  [{ temperature: null, top_p: null, response_format: null, structured_outputs: null, tool_choice: "none" }, {}],
  [{ stop: ["x"], seed: 7, max_tokens: 3, ignore_eos: true, n: 2, user: "u" }, {}],
  [{ temperature: 0 }, { temperature: 0 }],
  [
    { temperature: 0.7, top_p: 0.9, top_k: 5, min_p: 0.1 },
    { temperature: 0.7, top_p: 0.9, top_k: 5, min_p: 0.1 },
  ],
  [
    { frequency_penalty: -1, presence_penalty: 1, repetition_penalty: 1.1, min_tokens: 4 },
    { frequency_penalty: -1, presence_penalty: 1, repetition_penalty: 1.1, min_tokens: 4 },
  ],
  [
    { logit_bias: { "5": -100 }, allowed_token_ids: [], bad_words: ["no"] },
    { logit_bias: true, allowed_token_ids: true, bad_words: true },
  ],
  [
    { structured_outputs: { regex: "a+" }, response_format: { type: "json_schema", json_schema: { schema: {} } } },
    { structured_outputs: true, response_format: true },
  ],
  [{ tool_choice: "required" }, { tool_choice: true }],
  [{ tool_choice: { type: "function", function: { name: "add" } } }, { tool_choice: true }],
])("samplingOf(%j) is %j", (request, expected) => {
  expect(samplingOf({ messages, ...request })).toEqual(expected);
});
