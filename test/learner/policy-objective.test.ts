import { readFileSync } from "node:fs";
import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { tokenLoss } from "../../src/engine/token-loss.ts";
import { checkRlConfig, linearLoss, linearRows, policyObjective, policyRows, type PolicyObjective } from "../../src/learner/index.ts";
import type { RlConfig } from "../../src/base/schema/index.ts";

type Numbers = readonly number[];
interface Vectors {
  readonly inputs: {
    readonly old_logprobs: readonly (number | null)[];
    readonly original_logprobs: readonly (number | null)[];
    readonly new_logprobs: Numbers;
    readonly ref_logprobs: Numbers;
    readonly assistant_mask: Numbers;
    readonly advantages: Numbers;
    readonly weights: Numbers;
    readonly group_ids: Numbers;
  };
  readonly cases: Readonly<
    Record<
      string,
      {
        readonly config: RlConfig;
        readonly policy_loss: number;
        readonly kl_policy_ref: number | null;
        readonly grad_new_logprobs: Numbers;
      }
    >
  >;
}
const { loss: vectors } = JSON.parse(readFileSync(new URL("fixtures/rl-vectors.json", import.meta.url), "utf8")) as { loss: Vectors };
const { inputs } = vectors;

const OFF: PolicyObjective = {
  kind: "cispo",
  epsilon: 1,
  epsilonHigh: 4,
  level: "token",
  tau: 0,
  masksRatio: false,
  maxNegativeRatio: null,
  truncation: null,
  precalculates: false,
  kl: null,
  compat: null,
};

/** Packed row of the vectors, split into sequences by id; the division by the number of trained tokens is in the weights. */
const POSITIONS = [...new Set(inputs.group_ids)]
  .map((id) => [...inputs.group_ids.keys()].filter((at) => inputs.group_ids[at] === id))
  .filter((positions) => positions.some((at) => inputs.assistant_mask[at] === 1));
const ROWS = POSITIONS.map((positions) => {
  const column = (values: readonly (number | null)[]) => positions.map((at) => values[at] ?? Number.NaN);
  return {
    weights: column(inputs.weights).map((weight) => weight / 6),
    advantages: column(inputs.advantages),
    newLogprobs: column(inputs.new_logprobs),
    sampledLogprobs: column(inputs.old_logprobs),
    referenceLogprobs: column(inputs.ref_logprobs),
  };
});

function objectiveOf(config: RlConfig): PolicyObjective {
  const settings = checkRlConfig(config);
  return settings.objective ?? { ...OFF, ...settings.loss };
}

describe("policyObjective", () => {
  // These two record defects of the reference. Its mean divergence is over its one packed row, which is all of the batch.
  const isDefect = (name: string) => ["cispo_mask_ratio", "cispo_maxneg"].includes(name);

  it.each(Object.keys(vectors.cases))("agrees with the reference vectors: %s", (name) => {
    const { config, policy_loss: expectedLoss, grad_new_logprobs: expectedGradient, kl_policy_ref: expectedKl } = vectors.cases[name]!;
    const { loss, derivatives, kl } = policyObjective(ROWS, objectiveOf({ ...config, ...(isDefect(name) ? { compat: "art" } : {}) }));
    expect(Math.abs(loss / expectedLoss - 1)).toBeLessThan(1e-6);
    if (expectedKl === null) expect(kl).toBeNull();
    else expect(kl).toBeCloseTo(expectedKl, 9);
    for (const [row, positions] of POSITIONS.entries()) {
      for (const [t, at] of positions.entries()) {
        const expected = expectedGradient[at] as number;
        expect(Math.abs((derivatives[row]?.[t] as number) - expected)).toBeLessThanOrEqual(1e-6 * Math.abs(expected));
      }
    }
  });

  it("masks tokens outside the clip range (no loss, no gradient); the reference clips the masked ratio up again", () => {
    const config = { mask_prob_ratio: true, epsilon: 0.2, epsilon_high: 0.28 } as const;
    const [first, second] = policyObjective(ROWS, objectiveOf(config)).derivatives;
    // Ratios e^0.2, e^-0.5, e^0.5 and e^-0.2, e^-0.1, e^1: only those within (0.8, 1.28) are trained.
    expect([...first!].map((value) => value !== 0)).toEqual([true, false, false]);
    expect([...second!].map((value) => value !== 0)).toEqual([true, true, false]);
    const art = policyObjective(ROWS, objectiveOf({ ...config, compat: "art" })).derivatives;
    expect(art.flatMap((row) => [...row]).every((value) => value !== 0)).toBe(true);
  });

  it("gives masked tokens no gradient under `compat: art` with truncated importance sampling, unless log-probabilities are precalculated", () => {
    const config = { mask_prob_ratio: true, epsilon: 0.2, epsilon_high: 0.28, truncated_importance_sampling: 2, compat: "art" } as const;
    const isTrained = (given: RlConfig) =>
      policyObjective(ROWS, objectiveOf(given)).derivatives.map((row) => [...row].map((value) => value !== 0));
    // The factor min(ρ', T) of a masked token is min(0, 2) = 0.
    expect(isTrained(config)).toEqual([
      [true, false, false],
      [true, true, false],
    ]);
    // Precalculated, every ratio of the step is 1 and none is masked.
    expect(isTrained({ ...config, precalculate_logprobs: true }).flat()).not.toContain(false);
  });

  it("bounds only the ratio of negative advantages; the reference bounds every ratio", () => {
    const config = { max_negative_advantage_importance_sampling_weight: 1.1 };
    const [good, bad] = policyObjective(ROWS, objectiveOf(config)).derivatives;
    const [freeGood, freeBad] = policyObjective(ROWS, OFF).derivatives;
    expect(good).toEqual(freeGood);
    expect(bad![2]! / freeBad![2]!).toBeCloseTo(1.1 / Math.E, 12);
    expect(policyObjective(ROWS, objectiveOf({ ...config, compat: "art" })).derivatives[0]).not.toEqual(freeGood);
  });

  const logprob = fc.double({ min: -6, max: -0.01, noNaN: true });
  const token = fc.record({
    fresh: logprob,
    old: fc.option(logprob, { nil: Number.NaN }),
    advantage: fc.double({ min: -3, max: 3, noNaN: true }),
  });
  propertyTest.prop([fc.array(token, { minLength: 1, maxLength: 6 }), fc.constantFrom("cispo", "ppo")])(
    "equals the engine's loss if all other settings are off",
    (tokens, kind) => {
      const spec = { kind, epsilon: 0.3, epsilonHigh: 0.4 } as const;
      const row = {
        weights: tokens.map(() => 0.5),
        advantages: tokens.map(({ advantage }) => advantage),
        newLogprobs: tokens.map(({ fresh }) => fresh),
        sampledLogprobs: tokens.map(({ old }) => old),
      };
      const { loss, derivatives, kl } = policyObjective([row], { ...OFF, ...spec });
      const each = tokens.map(({ fresh, old, advantage }) => tokenLoss(spec, { newLogprob: fresh, oldLogprob: old, advantage }));
      expect(loss).toBeCloseTo(
        each.reduce((sum, { value }) => sum + value / 2, 0),
        9,
      );
      each.forEach(({ derivative }, t) => expect(derivatives[0]?.[t]).toBeCloseTo(derivative / 2, 9));
      expect(kl).toBeNull();
    },
  );
});

describe("linearRows", () => {
  it("reproduces the derivatives of the objective with a loss that every engine supports", () => {
    const rows = [
      {
        tokens: Int32Array.from([1, 2, 3, 4]),
        weights: Float32Array.from([0, 0.25, 0, 0.5]),
        advantages: Float32Array.from([0, 1, 0, 1]),
        logprobs: Float32Array.from([Number.NaN, -1, Number.NaN, -0.5]),
      },
    ];
    const fresh = [Float32Array.from([0, -0.7, 0, -0.9])];
    const { derivatives } = policyObjective(policyRows(rows, fresh), {
      ...OFF,
      kind: "ppo",
      epsilon: 0.2,
      epsilonHigh: 0.2,
      level: "sequence",
    });
    const [linear] = linearRows(rows, derivatives);
    expect(linear?.weights).toEqual(rows[0]?.weights);
    for (const t of [1, 3]) {
      const { derivative } = tokenLoss(linearLoss({}), {
        newLogprob: fresh[0]?.[t] as number,
        oldLogprob: linear?.logprobs?.[t] as number,
        advantage: linear?.advantages?.[t] as number,
      });
      expect(derivative * (linear?.weights[t] as number)).toBeCloseTo(derivatives[0]?.[t] as number, 6);
      expect(derivatives[0]?.[t]).not.toBe(0);
    }
    expect([...(linear?.advantages ?? [])].filter((_, t) => t % 2 === 0)).toEqual([0, 0]);
  });
});
