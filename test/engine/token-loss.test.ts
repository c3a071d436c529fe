import { readFileSync } from "node:fs";
import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { tokenLoss } from "../../src/engine/token-loss.ts";
import { resolveLoss } from "../../src/learner/index.ts";

interface Vectors {
  readonly inputs: {
    readonly old_logprobs: readonly (number | null)[];
    readonly new_logprobs: readonly number[];
    readonly assistant_mask: readonly number[];
    readonly advantages: readonly number[];
    readonly weights: readonly number[];
  };
  readonly cases: Readonly<
    Record<string, { readonly config: object; readonly policy_loss: number; readonly grad_new_logprobs: readonly number[] }>
  >;
}
const { loss: vectors } = JSON.parse(readFileSync(new URL("../learner/fixtures/rl-vectors.json", import.meta.url), "utf8")) as {
  loss: Vectors;
};

/** The cases that need nothing but one token. */
const PLAIN = ["cispo_default", "ppo_default", "ppo_asym"];

/** The reference sums over trained tokens and divides by their number (plus 1e-18). */
function reference(config: object): { readonly loss: number; readonly gradient: readonly number[] } {
  const { inputs } = vectors;
  const spec = resolveLoss(config);
  const count = inputs.assistant_mask.reduce((sum, bit) => sum + bit, 0);
  const tokens = inputs.new_logprobs.map((newLogprob, index) => {
    const scale = ((inputs.weights[index] as number) * (inputs.assistant_mask[index] as number)) / count;
    const { value, derivative } = tokenLoss(spec, {
      newLogprob,
      oldLogprob: inputs.old_logprobs[index] ?? Number.NaN,
      advantage: inputs.advantages[index] as number,
    });
    return { loss: scale * value, gradient: scale * derivative };
  });
  return { loss: tokens.reduce((sum, token) => sum + token.loss, 0), gradient: tokens.map((token) => token.gradient) };
}

describe("tokenLoss", () => {
  it.each(PLAIN.map((name) => [name, vectors.cases[name]!] as const))("agrees with the reference vectors: %s", (_, expected) => {
    const { loss, gradient } = reference(expected.config);
    expect(Math.abs(loss / expected.policy_loss - 1)).toBeLessThan(1e-9);
    for (const [index, value] of expected.grad_new_logprobs.entries()) {
      expect(Math.abs((gradient[index] as number) - value)).toBeLessThanOrEqual(1e-9 * Math.abs(value));
    }
  });

  it("takes the ratio as 1 for an unknown old log-probability", () => {
    const input = { newLogprob: -0.7, oldLogprob: Number.NaN, advantage: 2 };
    expect(tokenLoss({ kind: "cispo", epsilon: 1, epsilonHigh: 4 }, input)).toEqual({ value: 1.4, derivative: -2, byEntropy: 0 });
    expect(tokenLoss({ kind: "ppo", epsilon: 0.2, epsilonHigh: 0.2 }, input)).toEqual({ value: -2, derivative: -2, byEntropy: 0 });
  });

  it("is minus the log-probability for cross-entropy", () => {
    expect(tokenLoss({ kind: "cross-entropy" }, { newLogprob: -0.7, oldLogprob: Number.NaN, advantage: 9 })).toEqual({
      value: 0.7,
      derivative: -1,
      byEntropy: 0,
    });
  });

  const logprob = fc.double({ min: -8, max: -0.01, noNaN: true });
  const epsilon = fc.double({ min: 0.05, max: 1, noNaN: true });
  propertyTest.prop([logprob, logprob, fc.double({ min: -3, max: 3, noNaN: true }), epsilon, epsilon])(
    "has the derivative of finite differences for PPO, away from the clip's edges",
    (newLogprob, oldLogprob, advantage, low, high) => {
      const spec = { kind: "ppo", epsilon: low, epsilonHigh: high } as const;
      const ratio = Math.exp(newLogprob - oldLogprob);
      fc.pre(Math.min(Math.abs(ratio - 1 + low), Math.abs(ratio - 1 - high)) > 1e-3 * ratio);
      const step = 1e-6;
      const value = (n: number): number => tokenLoss(spec, { newLogprob: n, oldLogprob, advantage }).value;
      const numeric = (value(newLogprob + step) - value(newLogprob - step)) / (2 * step);
      const { derivative } = tokenLoss(spec, { newLogprob, oldLogprob, advantage });
      expect(Math.abs(derivative - numeric)).toBeLessThan(1e-5 * Math.max(1, Math.abs(value(newLogprob))));
    },
  );
});
