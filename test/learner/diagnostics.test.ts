import { describe, expect, it } from "vitest";
import { buildRlBatch, policyDiagnostics, trainingWarnings, type RlBatch } from "../../src/learner/index.ts";
import type { RlConfig } from "../../src/base/schema/index.ts";
import { choice, group } from "./helpers.ts";

const limits = { contextLength: 64 };
const HALF = Math.log(0.5);
const versioned = (version: number | null, ...given: Parameters<typeof choice>) => ({ ...choice(...given), policy_version: version });

/** Log-probabilities that lie `d` above those at sampling time, one `d` per trained token in the order of the rows. */
function shifted(batch: RlBatch, differences: readonly number[]): Float32Array[] {
  let next = 0;
  return batch.rows.map(({ weights, logprobs }) =>
    logprobs!.map((sampled, t) => (weights[t] === 0 ? 0 : (Number.isNaN(sampled) ? 0 : sampled) + (differences[next++] as number))),
  );
}

/** Three trained tokens, sampled at −1 each. */
function threeTokens(config: RlConfig = {}, version: number | null = 3, others: number | null = 3): RlBatch {
  const groups = [
    group(
      { reward: 1, choices: [versioned(version, [1, 2], [3, 4], [-1, -1])] },
      { reward: 0, choices: [versioned(others, [1, 2], [5], [-1])] },
    ),
  ];
  return buildRlBatch(groups, config, limits);
}

describe("policyDiagnostics", () => {
  it("computes its formulas", () => {
    const batch = threeTokens();
    const found = policyDiagnostics(batch, shifted(batch, [-HALF, HALF, 0]), { startStep: 3 });
    // Ratios 2, 1/2 and 1. Two tokens of advantage 1 and one of −1 before they are normalised; after it |A|·w has mean 1.
    const k3 = 0.5 / 3;
    expect(found["policy/kl_k1"]).toBeCloseTo(0, 6);
    expect(found["policy/kl_k3"]).toBeCloseTo(k3, 6);
    expect(found["sampler/mismatch_kl"]).toBeCloseTo(k3, 6);
    expect(found["policy/ess"]).toBeCloseTo(3.5 ** 2 / (3 * (4 + 1 / 4 + 1)), 6);
    expect(found["policy/ratio_mean"]).toBeCloseTo(3.5 / 3, 6);
    expect(found["policy/ratio_p99"]).toBeCloseTo(1 + 0.98, 6);
    expect(found["policy/ratio_max"]).toBeCloseTo(2, 6);
    expect(found["policy/clip_fraction"]).toBe(0);
    const [good, bad] = [batch.rows[0]!.advantages![2]!, batch.rows[1]!.advantages![2]!];
    const mean = (2 * good + bad) / 3;
    expect(found["advantage/mean"]).toBeCloseTo(mean, 6);
    expect(found["advantage/std"]).toBeCloseTo(Math.sqrt((2 * (good - mean) ** 2 + (bad - mean) ** 2) / 3), 6);
    expect(found).toMatchObject({ "staleness/mean": 0, "staleness/max": 0 });
  });

  it("counts tokens outside the clip range by the ratio that the loss uses", () => {
    const fraction = (config: RlConfig) => {
      const batch = threeTokens(config);
      return policyDiagnostics(batch, shifted(batch, [-HALF, HALF, 0.1]), { startStep: 3 })["policy/clip_fraction"];
    };
    expect(fraction({ ppo: true })).toBeCloseTo(2 / 3, 9);
    expect(fraction({ ppo: true, epsilon_high: 1.5 })).toBeCloseTo(1 / 3, 9);
    // A row's ratio: 2 · 1/2 = 1, and e^0.1 in the other.
    expect(fraction({ ppo: true, importance_sampling_level: "sequence" })).toBe(0);
    // Against the weights before the step every ratio is 1.
    expect(fraction({ ppo: true, precalculate_logprobs: true })).toBe(0);
  });

  it("separates sampler errors from policy changes by the policy version", () => {
    const batch = threeTokens({}, 3, 1);
    const found = policyDiagnostics(batch, shifted(batch, [0, 0, 0.5]), { startStep: 3 });
    expect(found["sampler/mismatch_kl"]).toBe(0);
    expect(found["policy/kl_k3"]).toBeCloseTo((Math.exp(0.5) - 1.5) / 3, 6);
    expect(found).toMatchObject({ "staleness/mean": 1, "staleness/max": 2 });
    // A turn without a version counts as sampled by the current policy.
    const unknown = threeTokens({}, null, null);
    const guessed = policyDiagnostics(unknown, shifted(unknown, [0, 0, 0.5]), { startStep: 3 });
    expect(guessed["sampler/mismatch_kl"]).toBeCloseTo((Math.exp(0.5) - 1.5) / 3, 6);
    expect(guessed).toMatchObject({ "staleness/mean": 0, "staleness/max": 0 });
    // Sampled by a checkpoint that was deleted since: not older than the one that is trained.
    const later = threeTokens({}, 5, 2);
    const ahead = policyDiagnostics(later, shifted(later, [0, 0, 0]), { startStep: 3 });
    expect(ahead).toMatchObject({ "staleness/mean": 0.5, "staleness/max": 1 });
  });

  it("uses the policy version of the trajectory for a choice without one", () => {
    const groups = [group({ reward: 1, choices: [choice([1], [2])] }, { reward: 0, choices: [choice([1], [3])] })];
    groups[0]!.trajectories[0]!.initial_policy_version = 2;
    groups[0]!.trajectories[1]!.final_policy_version = 5;
    const batch = buildRlBatch(groups, {}, limits);
    const found = policyDiagnostics(batch, shifted(batch, [0, 0]), { startStep: 6 });
    expect(found).toMatchObject({ "staleness/mean": 2.5, "staleness/max": 4 });
  });

  it("excludes unknown log-probabilities, and stays finite for a sampled log-probability of -9999", () => {
    const groups = [
      group({ reward: 1, choices: [{ ...choice([1], [2]), logprobs: null }] }, { reward: 0, choices: [choice([1], [3], [-9999])] }),
    ];
    const batch = buildRlBatch(groups, { allow_training_without_logprobs: true }, limits);
    const found = policyDiagnostics(batch, shifted(batch, [-5, 9998]), { startStep: 0 });
    expect(Object.values(found).every(Number.isFinite)).toBe(true);
    expect(found["policy/kl_k1"]).toBe(-60);
    // To the loss the first one's log-ratio is 0: it lies inside the clip, and is one of the two.
    expect(found["policy/clip_fraction"]).toBe(0.5);
    const [alone] = [
      group(
        { reward: 1, choices: [{ ...choice([1], [2]), logprobs: null }] },
        { reward: 0, choices: [{ ...choice([1], [3]), logprobs: null }] },
      ),
    ];
    const silent = buildRlBatch([alone], { allow_training_without_logprobs: true }, limits);
    expect(policyDiagnostics(silent, shifted(silent, [-1, -1]), { startStep: 0 })).toMatchObject({
      "policy/kl_k3": 0,
      "policy/ratio_mean": 1,
      "policy/ratio_p99": 1,
      "policy/ratio_max": 1,
      "policy/ess": 1,
      "sampler/mismatch_kl": 0,
    });
  });
});

describe("trainingWarnings", () => {
  const healthy = { "policy/entropy": 1, "policy/ess": 0.9, "sampler/mismatch_kl": 1e-6, "data/groups": 10, "advantage/zero_groups": 2 };
  const codes = (metrics: object, history: readonly object[] = []) =>
    trainingWarnings(
      { ...healthy, ...metrics },
      history.map((each) => ({ ...healthy, ...each })),
    ).map(({ code }) => code);

  it("are empty for a healthy step and for the first step", () => {
    expect(codes({}, [{}, {}, {}])).toEqual([]);
    expect(codes({ "policy/entropy": 0, "advantage/zero_groups": 9 })).toEqual([]);
  });

  it("report an entropy collapse", () => {
    expect(codes({ "policy/entropy": 0.24 }, [{ "policy/entropy": 0.3 }, {}])).toEqual(["entropy-collapse"]);
    expect(codes({ "policy/entropy": 0.26 }, [{ "policy/entropy": 0.3 }, {}])).toEqual([]);
    // Some engines report no entropy.
    expect(codes({ "policy/entropy": undefined }, [{}, {}])).toEqual([]);
    expect(codes({ "policy/entropy": 0.24 }, [{ "policy/entropy": undefined }, {}])).toEqual(["entropy-collapse"]);
    // Only the ten previous steps count.
    expect(codes({ "policy/entropy": 0.1 }, [...Array<object>(10).fill({ "policy/entropy": 0.2 }), {}])).toEqual([]);
  });

  it("report a rising fraction of constant groups", () => {
    const rising = [{ "advantage/zero_groups": 5 }, { "advantage/zero_groups": 4 }, { "advantage/zero_groups": 3 }];
    expect(codes({ "advantage/zero_groups": 6 }, rising)).toEqual(["constant-groups-rising"]);
    expect(codes({ "advantage/zero_groups": 4 }, rising)).toEqual([]);
    expect(codes({ "advantage/zero_groups": 6 }, rising.slice(1))).toEqual([]);
    // Many, but not more than before.
    expect(codes({ "advantage/zero_groups": 8 }, Array<object>(3).fill({ "advantage/zero_groups": 8 }))).toEqual([]);
  });

  it("report a small effective sample size and a sampler mismatch", () => {
    expect(codes({ "policy/ess": 0.29 })).toEqual(["low-ess"]);
    expect(codes({ "policy/ess": 0.3, "sampler/mismatch_kl": 1.1e-3 })).toEqual(["sampler-mismatch"]);
    const [warning] = trainingWarnings({ ...healthy, "policy/ess": 0.1 }, []);
    expect(warning).toMatchObject({ code: "low-ess", value: 0.1, threshold: 0.3, message: expect.stringContaining("10 %") });
  });
});
