import { expect, test } from "vitest";
import { completionPieces, toCompletion, type ShapeOptions } from "../../../src/service/chat/answer/shape.ts";
import type { GeneratedChoice } from "../../../src/service/chat/generate/generate.ts";
import { parseBody, readChat } from "../../../src/service/chat/request/request.ts";

const ENTRY = { token: "a", logprob: -0.5, bytes: [97], top_logprobs: [{ token: "b", logprob: -1, bytes: [98] }] };

/** A choice with so many log-probabilities; null for none. */
function choice(index: number, count: number | null): GeneratedChoice {
  const logprobs = count === null ? null : Array.from({ length: count }, () => ENTRY);
  return {
    index,
    text: "a",
    ids: [5, 6],
    logprobs,
    finishReason: "stop",
    stopReason: null,
    closedBy: 2,
    cachedTokens: 3,
    promptTokens: null,
  } as never;
}

test.each([[null], [0], [3], [600]])("an answer with %s log-probabilities is the same as an object and in pieces of JSON", (count) => {
  const given = parseBody(JSON.stringify({ messages: [{ role: "user", content: "hi" }], n: 2, return_token_ids: true }));
  const options: ShapeOptions = {
    head: { id: "chatcmpl-1", created: 1, model: "tiny" },
    request: readChat(given, { needs: { parsesReasoning: false } }),
    promptIds: Int32Array.of(1, 2, 3),
    role: "assistant",
    echo: "",
    promptLogprobs: [null, { "2": { logprob: -1, decoded_token: "b" } }],
    forcedCalls: null,
    shouldParseReasoning: false,
    unusedTemplateKwargs: ["mood"],
    reportsCachedTokens: true,
  };
  const choices = [choice(0, count), choice(1, count)];
  const messages = choices.map(() => ({ content: "a", reasoning: null, toolCalls: [] }));
  const json = [...completionPieces(choices, messages, options)].join("");
  expect(JSON.stringify(toCompletion(choices, messages, options))).toBe(json);
});
