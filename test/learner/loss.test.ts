import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../src/base/errors.ts";
import { resolveLoss } from "../../src/learner/index.ts";

describe("resolveLoss", () => {
  it.each([
    [{}, { kind: "cispo", epsilon: 1, epsilonHigh: 4 }],
    [
      { ppo: null, loss_fn: null, epsilon: null, epsilon_high: null },
      { kind: "cispo", epsilon: 1, epsilonHigh: 4 },
    ],
    [{ epsilon: 0.3 }, { kind: "cispo", epsilon: 0.3, epsilonHigh: 4 }],
    [{ ppo: true }, { kind: "ppo", epsilon: 0.2, epsilonHigh: 0.2 }],
    [
      { loss_fn: "ppo", epsilon: 0.1 },
      { kind: "ppo", epsilon: 0.1, epsilonHigh: 0.1 },
    ],
    [
      { ppo: true, loss_fn: "ppo", epsilon_high: 0.28 },
      { kind: "ppo", epsilon: 0.2, epsilonHigh: 0.28 },
    ],
    [
      { ppo: false, loss_fn: "cispo", epsilon: 0 },
      { kind: "cispo", epsilon: 0, epsilonHigh: 4 },
    ],
  ] as const)("reads %j", (config, expected) => {
    expect(resolveLoss(config)).toEqual(expected);
  });

  it.each([
    { ppo: true, loss_fn: "cispo" },
    { ppo: false, loss_fn: "ppo" },
  ] as const)("rejects the contradiction %j", (config) => {
    expect(() => resolveLoss(config)).toThrow(ArgumentError);
    expect(() => resolveLoss(config)).toThrow(/`ppo` and `loss_fn`/);
  });
});
