import { expect, test } from "vitest";
import { isPlain } from "../../../../src/engine/onnx/sample/draw-inputs.ts";
import { LogitRules } from "../../../../src/engine/onnx/sample/logits/rules.ts";
import type { SamplingParams } from "../../../../src/engine/port.ts";
import { params } from "./harness.ts";

const V = 512;
const plain = (more: Partial<SamplingParams>) => {
  const all = params(1, { topLogprobs: 0, ...more });
  return isPlain({ params: all, rules: LogitRules.of(all, Int32Array.of(1)), constraint: null }, V);
};

test.each([{}, { temperature: 0.5 }, { topK: V }, { minP: 0 }, { temperature: 0, topP: 0.5, topK: 3, minP: 0.1 }, { promptLogprobs: 2 }])(
  "a request with %o needs no distributions over the vocabulary",
  (more) => expect(plain(more)).toBe(true),
);

test.each([
  { topLogprobs: 1 },
  { topP: 0.99 },
  { topK: V - 1 },
  { minP: 0.01 },
  { temperature: 0, topLogprobs: 1 },
  { temperature: 0, logitBias: new Map([[3, 1]]) },
  { repetitionPenalty: 1.1 },
  { allowedTokenIds: [1, 2] },
])("a request with %o needs distributions over the vocabulary", (more) => expect(plain(more)).toBe(false));
