/** Each step of the logits pipeline on a vector, against values worked out by hand or by the formula. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it, vi } from "vitest";
import type { SamplingParams } from "../../../../src/engine/port.ts";
import { chooseToken, topTokens } from "../../../../src/engine/onnx/sample/choose.ts";
import { addBias, penalizeFrequency, penalizePresence, penalizeRepetition } from "../../../../src/engine/onnx/sample/logits/adjust.ts";
import { argmax, draw, drawFrom } from "../../../../src/engine/onnx/sample/logits/draw.ts";
import { applyTemperature, keepMinP, keepTopK, keepTopP } from "../../../../src/engine/onnx/sample/logits/filters.ts";
import { allowOnly, ban, banSequences } from "../../../../src/engine/onnx/sample/logits/masks.ts";
import { ruleLists, toSent } from "../../../../src/engine/onnx/sample/logits/lists.ts";
import { LogitRules } from "../../../../src/engine/onnx/sample/logits/rules.ts";
import { uniform } from "../../../../src/base/util/rng.ts";

const row = (...values: number[]): Float32Array => Float32Array.from(values);
const logs = (...probabilities: number[]): Float32Array => Float32Array.from(probabilities, Math.log);
/** The ids that can still be drawn. */
const left = (logits: Float32Array): number[] => [...logits.keys()].filter((id) => logits[id]! > -Infinity);
const after = (logits: Float32Array, step: (logits: Float32Array) => void): Float32Array => {
  step(logits);
  return logits;
};
const params = (more: Partial<SamplingParams> = {}): SamplingParams => ({
  maxTokens: 8,
  temperature: 1,
  topP: 1,
  topK: 0,
  seed: 1n,
  stopTokenIds: [],
  topLogprobs: 0,
  ...more,
});

describe("masks", () => {
  it("41: keeps only allowed tokens", () => {
    expect(left(after(row(1, 2, 3, 4), (x) => allowOnly(x, ruleLists(params({ allowedTokenIds: [3, 1] })).allowed!)))).toEqual([1, 3]);
  });
  it("42: bans the last token of a sequence after its other tokens, and a single-token sequence always", () => {
    const banned = (outputs: number[], ...sequences: number[][]) =>
      left(after(row(0, 0, 0, 0), (x) => banSequences(x, ruleLists(params({ bannedSequences: sequences })).banned!, outputs)));
    expect(banned([], [2])).toEqual([0, 1, 3]);
    expect(banned([], [1, 2])).toEqual([0, 1, 2, 3]);
    expect(banned([0, 1], [1, 2])).toEqual([0, 1, 3]);
    expect(banned([1, 0], [1, 2])).toEqual([0, 1, 2, 3]);
    expect(banned([3, 1, 1], [1, 1, 0], [2, 1, 3], [1, 2])).toEqual([1, 3]);
    expect(banned([1], [1, 1, 0])).toEqual([0, 1, 2, 3]);
  });
  it("52: removes banned ids", () => {
    expect(left(after(row(1, 2, 3), (x) => ban(x, [0, 2])))).toEqual([1]);
  });
});

describe("token lists of a request", () => {
  it("are converted once for all choices of a request, in shared memory", () => {
    const request = params({ allowedTokenIds: [3, 1], bannedSequences: [[1, 2], [3]], logitBias: new Map([[2, -0.5]]) });
    const [first, second] = [toSent(request), toSent({ ...request, seed: 2n })];
    expect(Object.keys(first)).not.toContain("allowedTokenIds");
    for (const name of ["allowed", "banned", "bias"] as const) expect(second.lists[name]).toBe(first.lists[name]);
    expect(first.lists.allowed?.buffer).toBeInstanceOf(SharedArrayBuffer);
    expect([...first.lists.allowed!]).toEqual([0, 1, 0, 1]);
    expect([[...first.lists.banned!.tokens], [...first.lists.banned!.starts]]).toEqual([
      [1, 2, 3],
      [0, 2, 3],
    ]);
    const rules = LogitRules.of(first, Int32Array.of(1));
    expect([...rules!.apply(row(1, 1, 1, 1, 1))]).toEqual([-Infinity, 1, -Infinity, -Infinity, -Infinity]);
    expect(toSent(params({ bannedSequences: [], logitBias: new Map() })).lists).toEqual({ allowed: null, banned: null, bias: null });
  });
});

describe("adjustments", () => {
  it("43: adds a bias", () => {
    expect([
      ...after(row(1, -2, 3), (x) =>
        addBias(
          x,
          ruleLists(
            params({
              logitBias: new Map([
                [1, 100],
                [2, -0.5],
              ]),
            }),
          ).bias!,
        ),
      ),
    ]).toEqual([1, 98, 2.5]);
  });
  it("40: the repetition penalty divides positive logits and multiplies the others, once per token", () => {
    expect([...after(row(3, -3, 0, 3), (x) => penalizeRepetition(x, [0, 1, 2], 1.5))]).toEqual([2, -4.5, 0, 3]);
    expect([...after(row(3, -3), (x) => penalizeRepetition(x, [0, 1], 0.5))]).toEqual([6, -1.5]);
  });
  it("38, 39: the frequency penalty scales with the count, the presence penalty does not", () => {
    const counts = new Map([
      [0, 3],
      [2, 1],
    ]);
    expect([...after(row(1, 1, 1), (x) => penalizeFrequency(x, counts, 2))]).toEqual([-5, 1, -1]);
    expect([...after(row(1, 1, 1), (x) => penalizePresence(x, counts, 2))]).toEqual([-1, 1, -1]);
    expect([...after(row(1, 1, 1), (x) => penalizePresence(x, counts, -2))]).toEqual([3, 1, 3]);
  });
});

describe("filters", () => {
  it("the temperature divides the differences to the largest logit", () => {
    expect([...after(row(5, 4, -Infinity), (x) => applyTemperature(x, 0.5))]).toEqual([0, -2, -Infinity]);
    expect([...after(row(5000, 4000), (x) => applyTemperature(x, 0.01))]).toEqual([0, -100_000]);
  });
  it("min-p is a fraction of the largest probability", () => {
    expect(left(after(logs(0.5, 0.26, 0.24), (x) => keepMinP(x, 0.5)))).toEqual([0, 1]);
    expect(left(after(logs(0.4, 0.4, 0.2), (x) => keepMinP(x, 1)))).toEqual([0, 1]);
    expect(left(after(logs(0.4, 0.4, 0.2), (x) => keepMinP(x, 0.01)))).toEqual([0, 1, 2]);
  });
  it("top-k keeps ties with the k-th", () => {
    expect(left(after(row(4, 1, 3, 3, 2), (x) => keepTopK(x, 2)))).toEqual([0, 2, 3]);
    expect(left(after(row(1, 2), (x) => keepTopK(x, 5)))).toEqual([0, 1]);
    expect(left(after(row(1, -Infinity, 2), (x) => keepTopK(x, 3)))).toEqual([0, 2]);
  });
  it("top-p keeps the most likely tokens until their mass reaches it, at least one", () => {
    expect(left(after(logs(0.2, 0.5, 0.3), (x) => keepTopP(x, 0.4)))).toEqual([1]);
    expect(left(after(logs(0.2, 0.5, 0.3), (x) => keepTopP(x, 0.51)))).toEqual([1, 2]);
    expect(left(after(logs(0.2, 0.5, 0.3), (x) => keepTopP(x, 0.81)))).toEqual([0, 1, 2]);
    expect(left(after(logs(0.2, 0.5, 0.3), (x) => keepTopP(x, 1e-9)))).toEqual([1]);
  });
  it("top-p applies to the tokens that top-k kept", () => {
    const logits = logs(0.4, 0.3, 0.2, 0.1);
    keepTopK(logits, 2);
    // 0.4 / 0.7 = 0.571 of the remaining mass.
    expect(left(after(logits.slice(), (x) => keepTopP(x, 0.57)))).toEqual([0]);
    expect(left(after(logits.slice(), (x) => keepTopP(x, 0.58)))).toEqual([0, 1]);
  });

  /** Definitions by sorting the whole row. */
  const sortedTopK = (logits: Float32Array, topK: number): Float32Array => {
    const floor = topK < logits.length ? logits.toSorted().at(-topK)! : -Infinity;
    return logits.map((logit) => (logit < floor ? -Infinity : logit));
  };
  const sortedTopP = (logits: Float32Array, topP: number): Float32Array => {
    const sorted = logits.toSorted();
    const best = sorted.at(-1)!;
    let total = 0;
    for (const logit of sorted) total += Math.exp(logit - best);
    let [mass, at] = [0, sorted.length - 1];
    for (; at > 0 && sorted[at]! > -Infinity; at--) {
      mass += Math.exp(sorted[at]! - best);
      if (mass >= topP * total) break;
    }
    return logits.map((logit) => (logit < sorted[at]! ? -Infinity : logit));
  };
  const tied = fc.constantFrom(-Infinity, -90, -2.5, -0, 0, 1, 1.5);
  const wideRow = fc
    .tuple(
      fc.array(fc.oneof(tied, fc.float({ min: -200, max: 20, noNaN: true }), fc.float({ min: -1, max: 1, noNaN: true })), {
        minLength: 1,
        maxLength: 60,
      }),
      fc.integer({ min: 1, max: 40 }),
    )
    .map(([values, copies]) => Float32Array.from(Array.from({ length: copies }, () => values).flat()));
  const fraction = fc.oneof(fc.double({ min: 1e-9, max: 1, noNaN: true }), fc.constantFrom(0.1, 0.25, 0.5, 0.75, 0.9, 1 - 1e-12));
  test.prop([wideRow, fc.integer({ min: 1, max: 2500 }), fraction], { numRuns: 500 })(
    "top-k, top-p and alternatives are equal to the definitions that sort the whole row",
    (logits, topK, topP) => {
      expect(after(logits.slice(), (x) => keepTopK(x, topK))).toEqual(sortedTopK(logits, topK));
      expect(after(logits.slice(), (x) => keepTopP(x, topP))).toEqual(sortedTopP(logits, topP));
      const ids = [...logits.keys()].sort((a, b) => (logits[b]! > logits[a]! ? 1 : logits[b]! < logits[a]! ? -1 : a - b));
      expect(topTokens(logits, topK).map(({ id }) => id)).toEqual(ids.slice(0, topK));
    },
  );
  it("sorts a small part of a large row", () => {
    const logits = Float32Array.from({ length: 50_000 }, (_, id) => -15 * uniform(1n, id));
    logits.set([3, 2.5, 2], 40_000);
    const sorted: number[] = [];
    const { sort } = Float32Array.prototype;
    vi.spyOn(Float32Array.prototype, "toSorted").mockImplementation(() => expect.unreachable());
    vi.spyOn(Float32Array.prototype, "sort").mockImplementation(function (this: Float32Array) {
      sorted.push(this.length);
      return sort.call(this);
    });
    try {
      keepTopP(logits.slice(), 0.5);
      keepTopK(logits.slice(), 40);
      topTokens(logits, 100);
    } finally {
      vi.restoreAllMocks();
    }
    expect(sorted).toHaveLength(3);
    for (const length of sorted) expect(length).toBeLessThan(logits.length / 10);
  });

  const logitRow = fc.array(fc.float({ min: -20, max: 20, noNaN: true }), { minLength: 1, maxLength: 40 });
  test.prop([logitRow, fc.double({ min: 0.01, max: 0.99, noNaN: true })], { numRuns: 300 })(
    "top-p keeps a token exactly if the more likely tokens have not reached the mass",
    (values, topP) => {
      const logits = Float32Array.from(values);
      const weights = [...logits].map((x) => Math.exp(x));
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      const better = [...logits].map((x) => weights.reduce((sum, weight, id) => sum + (logits[id]! > x ? weight : 0), 0) / total);
      const kept = new Set(left(after(logits.slice(), (x) => keepTopP(x, topP))));
      for (const [id, mass] of better.entries()) if (Math.abs(mass - topP) > 1e-9) expect(kept.has(id)).toBe(mass < topP);
    },
  );
});

describe("choosing", () => {
  it("the draw is the inverse cumulative distribution at the request's random number", () => {
    const logprobs = logs(0.1, 0.2, 0.3, 0.4);
    const edges = [0.1, 0.3, 0.6, 1];
    for (let seed = 0n; seed < 200n; seed++) {
      const u = uniform(seed, 5);
      if (edges.some((edge) => Math.abs(edge - u) < 1e-6)) continue;
      expect(chooseToken(logprobs, params({ seed }), 5)).toBe(edges.findIndex((edge) => u < edge));
    }
  });
  it("never draws a token of probability 0", () => {
    for (const u of [1e-16, 0.25, 0.5, 0.75, 1 - 1e-16]) expect([1, 3]).toContain(draw(row(-Infinity, 0, -Infinity, 0, -Infinity), u));
  });
  it("argmax returns the first of equal maxima", () => {
    expect(argmax(row(1, 3, 3))).toBe(1);
  });
  it("does not modify the logits", () => {
    const logits = row(1, 2, 3);
    const rules = LogitRules.of(params({ logitBias: new Map([[0, 5]]) }), Int32Array.of(1));
    chooseToken(logits, params({ temperature: 0.5, topK: 1, minP: 0.5, topP: 0.5 }), 0, rules);
    expect([...logits]).toEqual([1, 2, 3]);
  });
  it("each filter gives the frequencies of its formula", () => {
    const logprobs = logs(0.5, 0.25, 0.15, 0.1);
    const share = (more: Partial<SamplingParams>): number[] => {
      const counts = [0, 0, 0, 0];
      for (let seed = 0; seed < 4000; seed++) counts[chooseToken(logprobs, params({ ...more, seed: BigInt(seed) }), 0)]! += 1 / 4000;
      return counts;
    };
    const close = (actual: number[], expected: number[]) =>
      actual.forEach((value, id) => expect(Math.abs(value - expected[id]!), `token ${id}`).toBeLessThan(0.04));
    close(share({}), [0.5, 0.25, 0.15, 0.1]);
    // Squares, normalised: 0.25, 0.0625, 0.0225, 0.01 of 0.345.
    close(share({ temperature: 0.5 }), [0.725, 0.181, 0.065, 0.029]);
    close(share({ topK: 2 }), [2 / 3, 1 / 3, 0, 0]);
    close(share({ topP: 0.6 }), [2 / 3, 1 / 3, 0, 0]);
    close(share({ minP: 0.25 }), [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0]);
  });
  it("sorts alternatives by log-probability, ties by id", () => {
    expect(topTokens(logs(0.1, 0.4, 0.1, 0.4), 3).map(({ id }) => id)).toEqual([1, 3, 0]);
    const many = Float32Array.from({ length: 200 }, (_, id) => (id * 37) % 50);
    const sorted = Array.from(many, (logprob, id) => ({ id, logprob })).sort((a, b) => b.logprob - a.logprob || a.id - b.id);
    for (const count of [0, 1, 60, 64, 65, 70, 200, 300]) expect(topTokens(many, count)).toEqual(sorted.slice(0, count));
    const masked = logs(0, 0.4, 0, 0);
    for (const count of [3, 4]) expect(topTokens(masked, count).map(({ id }) => id)).toEqual([1, 0, 2, 3].slice(0, count));
  });
});

describe("the rules of a request", () => {
  const of = (more: Partial<SamplingParams>, prompt: number[] = []) => LogitRules.of(params(more), Int32Array.from(prompt))!;

  it("are null for a request with neutral values only", () => {
    expect(of({})).toBeNull();
    expect(of({ minTokens: 0, lateTokenIds: [1], logitBias: new Map(), bannedSequences: [], repetitionPenalty: 1, minP: 0.2 })).toBeNull();
  });
  it("need logits only for a repetition penalty", () => {
    expect(of({ repetitionPenalty: 1.1 }).needsLogits).toBe(true);
    expect(of({ frequencyPenalty: 1, allowedTokenIds: [1] }).needsLogits).toBe(false);
  });
  it("40: penalize repeated tokens of prompt and output once each", () => {
    const rules = of({ repetitionPenalty: 2 }, [0, 0]);
    rules.record(1);
    rules.record(1);
    expect([...rules.apply(row(4, 4, 4))]).toEqual([2, 2, 4]);
  });
  it("38, 39: frequency and presence penalties ignore the prompt", () => {
    const rules = of({ frequencyPenalty: 1, presencePenalty: 0.5 }, [2, 2]);
    rules.record(1);
    rules.record(1);
    expect([...rules.apply(row(4, 4, 4))]).toEqual([4, 1.5, 4]);
  });
  it("52: ban end tokens before the minimum number of tokens", () => {
    const rules = of({ minTokens: 2, lateTokenIds: [0] });
    for (const expected of [
      [1, 2],
      [1, 2],
      [0, 1, 2],
    ]) {
      expect(left(rules.apply(row(9, 1, 1)))).toEqual(expected);
      rules.record(1);
    }
  });
  it("apply the bias before the penalties, and never lift a mask", () => {
    const rules = of(
      {
        allowedTokenIds: [1, 2],
        logitBias: new Map([
          [0, 100],
          [1, 4],
        ]),
        repetitionPenalty: 2,
      },
      [1],
    );
    expect([...rules.apply(row(0, 2, 1))]).toEqual([-Infinity, 3, 1]);
  });
  it("throw if no token is left", () => {
    const rules = of({ allowedTokenIds: [1], bannedSequences: [[1, 1]] });
    expect(left(rules.apply(row(0, 0)))).toEqual([1]);
    rules.record(1);
    expect(() => rules.apply(row(0, 0))).toThrow(
      expect.objectContaining({ code: "E_UNSUPPORTED", message: expect.stringContaining("after 1") }),
    );
  });
});

test.each([1, 3, 255, 256, 257, 1000, 49_152])("a draw from %i probabilities is the inverse of the cumulative distribution", (size) => {
  for (let seed = 1n; seed <= 20n; seed++) {
    const weights = Array.from({ length: size }, (_, i) => (uniform(seed, i) < 0.3 ? 0 : uniform(seed, i, 1) ** 8));
    weights[Number(seed) % size] = 1;
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const probs = Float32Array.from(weights, (weight) => weight / total);
    const sum = probs.reduce((all, prob) => all + prob, 0);
    for (const u of [1e-12, uniform(seed, 1, 2), uniform(seed, 2, 2), uniform(seed, 3, 2), 1 - 1e-12]) {
      const id = drawFrom(probs, u);
      expect(probs[id]).toBeGreaterThan(0);
      const before = probs.subarray(0, id).reduce((all, prob) => all + prob, 0);
      expect(before).toBeLessThanOrEqual(u * sum + 1e-9);
      expect(before + probs[id]!).toBeGreaterThanOrEqual(u * sum - 1e-9);
    }
  }
});

test("a draw in the gap between a block's sum and the sum of its single probabilities takes the next token with a probability", () => {
  let found = 0;
  for (let seed = 1n; seed <= 200n; seed++) {
    const probs = Float32Array.from({ length: 1024 }, (_, i) => (i < 256 ? uniform(seed, i) ** 4 : 0));
    probs[900] = 0.5;
    const partial = [0, 1, 2, 3].map((part) => probs.subarray(0, 256).reduce((sum, prob, i) => (i % 4 === part ? sum + prob : sum), 0));
    const block = partial[0]! + partial[1]! + (partial[2]! + partial[3]!);
    const total = block + 0.5;
    for (let k = 1; k <= 16; k++) {
      const u = (block * (1 - k * 2 ** -53)) / total;
      const left = probs.subarray(0, 256).reduce((rest, prob) => rest - prob, u * total);
      if (u * total >= block || left < 0) continue;
      expect(drawFrom(probs, u)).toBe(900);
      found++;
    }
  }
  expect(found).toBeGreaterThan(0);
});
