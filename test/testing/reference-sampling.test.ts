/** Token selection of the embedded engine against the definitions of the reference engine. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { chooseToken, topTokens } from "../../src/engine/onnx/sample/choose.ts";
import { LogitRules } from "../../src/engine/onnx/sample/logits/rules.ts";
import type { SamplingParams } from "../../src/engine/port.ts";
import * as reference from "../../src/testing/reference/sampling.ts";

const V = 12;
const token = fc.integer({ min: 0, max: V - 1 });
/** Multiples of 1/4, so that both engines compute rules without rounding, and ties occur. */
const quarter = (min: number, max: number) => fc.integer({ min: 4 * min, max: 4 * max }).map((x) => x / 4);

const params: fc.Arbitrary<SamplingParams> = fc.record({
  maxTokens: fc.constant(9),
  temperature: fc.constantFrom(0, 0.5, 1, 2),
  topP: fc.constantFrom(1, 0.9, 0.5, 0.1),
  topK: fc.constantFrom(0, 1, 3, V),
  minP: fc.constantFrom(0, 0.05, 0.4),
  seed: fc.bigInt({ min: 0n, max: 2n ** 62n }),
  stopTokenIds: fc.constant([]),
  topLogprobs: fc.constant(0),
  allowedTokenIds: fc.option(fc.uniqueArray(token, { minLength: 1 }), { nil: undefined }),
  bannedSequences: fc.array(fc.array(token, { minLength: 1, maxLength: 3 }), { maxLength: 3 }),
  minTokens: fc.integer({ min: 0, max: 4 }),
  lateTokenIds: fc.array(token, { maxLength: 3 }),
  logitBias: fc.array(fc.tuple(token, quarter(-4, 4)), { maxLength: 3 }).map((entries) => new Map(entries)),
  repetitionPenalty: fc.constantFrom(1, 2, 0.5),
  frequencyPenalty: fc.constantFrom(0, 0.5, -1),
  presencePenalty: fc.constantFrom(0, 1, -0.25),
});

/** The chosen token, or the code of the error. */
function outcome(choose: () => number): number | string {
  try {
    return choose();
  } catch (error) {
    return (error as { code: string }).code;
  }
}

describe("a token", () => {
  test.prop(
    [
      fc.array(quarter(-8, 8), { minLength: V, maxLength: V }),
      params,
      fc.array(token, { maxLength: 4 }),
      fc.array(token, { maxLength: 5 }),
    ],
    { numRuns: 2000, seed: 1 },
  )("is chosen as the definitions of the sampling parameters state", (logits, request, prompt, outputs) => {
    const rules = LogitRules.of(request, Int32Array.from(prompt));
    for (const id of outputs) rules?.record(id);
    const context = { prompt, outputs };
    const expected = outcome(() => reference.chooseReferenceToken(Float64Array.from(logits), request, context));
    expect(outcome(() => chooseToken(Float32Array.from(logits), request, outputs.length, rules))).toBe(expected);
  });

  it("is drawn by the seed and the number of sampled tokens", () => {
    const plain = { maxTokens: 9, temperature: 1, topP: 1, topK: 0, seed: 7n, stopTokenIds: [], topLogprobs: 0 };
    const drawn = Array.from({ length: 20 }, (_, count) =>
      reference.chooseReferenceToken(new Float64Array(V), plain, { prompt: [], outputs: Array<number>(count).fill(0) }),
    );
    expect(new Set(drawn).size).toBeGreaterThan(5);
  });
});

describe("alternatives", () => {
  test.prop([fc.array(quarter(-4, 0), { minLength: 1, maxLength: 90 }), fc.integer({ min: 0, max: 90 })])(
    "are the best tokens, at a tie the lower id first",
    (logprobs, count) => {
      expect(topTokens(Float32Array.from(logprobs), count)).toEqual(reference.bestTokens(Float64Array.from(logprobs), count));
    },
  );
});

describe("log-probabilities", () => {
  it("of a row with a NaN, an infinite logit, or no finite logit are an error", () => {
    for (const row of [
      [0, NaN],
      [Infinity, 0],
      [-Infinity, -Infinity],
    ])
      expect(() => reference.referenceLogSoftmax(Float64Array.from(row), 3)).toThrow(/position 3/u);
    const [first, second] = reference.referenceLogSoftmax(Float64Array.of(0, -Infinity), 0);
    expect([first, second]).toEqual([0, -Infinity]);
  });
});
