import { readFileSync } from "node:fs";
import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { DataError } from "../../src/base/errors.ts";
import { groupAdvantages, normalizeBatch } from "../../src/learner/index.ts";

interface Vectors {
  readonly group: readonly { readonly assistant_mask: readonly number[]; readonly reward: number }[];
  readonly advantages: readonly number[];
  readonly weights: readonly number[];
  readonly cases: Readonly<
    Record<string, { readonly advantage_balance: number; readonly advantages: readonly number[]; readonly weights: readonly number[] }>
  >;
}
const { pack: vectors } = JSON.parse(readFileSync(new URL("fixtures/rl-vectors.json", import.meta.url), "utf8")) as { pack: Vectors };

/** Relative distance. */
function apart(a: number, b: number): number {
  return Math.abs(a - b) / Math.max(Math.abs(a), Math.abs(b), 1e-300);
}

/** Max rounding error of an advantage from the mean of `G` rewards: `G·2^-52·max|r|`, over the divisor of advantages. */
function roundingOf(rewards: readonly number[], scale: boolean): number {
  const mean = rewards.reduce((sum, value) => sum + value, 0) / rewards.length;
  const deviation = Math.sqrt(rewards.reduce((sum, value) => sum + (value - mean) ** 2, 0) / rewards.length);
  return (rewards.length * Number.EPSILON * Math.max(...rewards.map(Math.abs))) / (scale ? deviation + 1e-6 : 1);
}

const reward = fc.double({ min: -1000, max: 1000, noNaN: true });

describe("groupAdvantages", () => {
  it("match the reference vectors, and are exactly 0 at the mean", () => {
    const advantages = groupAdvantages(vectors.group.map((trajectory) => trajectory.reward));
    expect(advantages[2]).toBe(0);
    for (const [index, expected] of vectors.advantages.entries()) expect(apart(advantages[index] as number, expected)).toBeLessThan(1e-9);
  });

  it("have the sign of a small difference to the mean", () => {
    const advantages = groupAdvantages([0, 0, -1.5e-12], { scale: false });
    expect([...advantages].map(Math.sign)).toEqual([1, 1, -1]);
  });

  it("subtract only the mean with `scale: false`", () => {
    expect([...groupAdvantages([1, 0], { scale: false })]).toEqual([0.5, -0.5]);
    expect([...groupAdvantages([3, 0, 0], { scale: false })]).toEqual([2, -1, -1]);
  });

  propertyTest.prop([fc.array(reward, { minLength: 2, maxLength: 16 }), fc.boolean()])("sum to zero", (rewards, scale) => {
    const advantages = groupAdvantages(rewards, { scale });
    // Each of the G terms carries the rounding of the mean, and at most the same again where it was set to 0.
    expect(Math.abs(advantages.reduce((sum, value) => sum + value, 0))).toBeLessThanOrEqual(
      4 * rewards.length * roundingOf(rewards, scale),
    );
  });

  propertyTest.prop([
    fc
      .array(reward, { minLength: 2, maxLength: 8 })
      .chain((rewards) => fc.tuple(fc.constant(rewards), fc.shuffledSubarray([...rewards.keys()], { minLength: rewards.length }))),
  ])("do not depend on the order within the group", ([rewards, order]) => {
    const direct = groupAdvantages(rewards);
    const permuted = groupAdvantages(order.map((index) => rewards[index] as number));
    for (const [place, index] of order.entries()) {
      expect(Math.abs((permuted[place] as number) - (direct[index] as number))).toBeLessThanOrEqual(16 * roundingOf(rewards, true));
    }
  });

  propertyTest.prop([fc.array(fc.integer({ min: -100, max: 100 }), { minLength: 2, maxLength: 8 }), fc.integer({ min: -100, max: 100 })])(
    "do not change when every reward is shifted",
    (rewards, shift) => {
      const direct = groupAdvantages(rewards);
      const shifted = groupAdvantages(rewards.map((value) => value + shift));
      for (const [index, value] of direct.entries()) expect(Math.abs((shifted[index] as number) - value)).toBeLessThan(1e-9);
    },
  );

  it.each([Number.NaN, Number.POSITIVE_INFINITY])("rejects the reward %d", (bad) => {
    expect(() => groupAdvantages([0, bad])).toThrow(DataError);
  });
});

describe("normalizeBatch", () => {
  const entries = vectors.advantages.map((advantage, index) => ({
    advantage,
    tokens: vectors.group[index]?.assistant_mask.reduce((sum, bit) => sum + bit, 0) ?? 0,
  }));

  it("uses the reference's initial weights", () => {
    for (const [index, { tokens }] of entries.entries())
      expect(apart(1 / (tokens + 1e-6), vectors.weights[index] as number)).toBeLessThan(1e-9);
  });

  // The reference packs float32, hence 2^-22.
  it.each(Object.entries(vectors.cases))("agrees with the reference vectors: %s", (_, expected) => {
    const normalized = normalizeBatch(entries, expected.advantage_balance);
    for (const [index, { weight, advantage }] of normalized.entries()) {
      expect(apart(weight, expected.weights[index] as number)).toBeLessThan(2 ** -22);
      expect(apart(advantage, expected.advantages[index] as number)).toBeLessThan(2 ** -22);
    }
  });

  const entry = fc.record({
    advantage: fc.double({ min: 0.01, max: 5, noNaN: true }).chain((size) => fc.constantFrom(size, -size)),
    tokens: fc.integer({ min: 1, max: 500 }),
  });
  propertyTest.prop([fc.array(entry, { minLength: 1, maxLength: 12 }), fc.double({ min: -0.9, max: 0.9, noNaN: true })])(
    "scales the mean weight and the mean weighted advantage to 1, and gives every trajectory the same weight",
    (batch, balance) => {
      const normalized = normalizeBatch(batch, balance);
      const tokens = batch.reduce((sum, { tokens: count }) => sum + count, 0);
      const total = (value: (index: number) => number): number =>
        batch.reduce((sum, { tokens: count }, index) => sum + count * value(index), 0) / tokens;
      const at = (index: number) => normalized[index] as { weight: number; advantage: number };
      expect(total((index) => at(index).weight)).toBeCloseTo(1, 9);
      expect(total((index) => at(index).weight * Math.abs(at(index).advantage))).toBeCloseTo(1, 9);
      const perTrajectory = batch.map(({ tokens: count }, index) => count * at(index).weight);
      for (const weight of perTrajectory) expect(apart(weight, perTrajectory[0] as number)).toBeLessThan(1e-5);
      for (const [index, { advantage }] of batch.entries()) expect(Math.sign(at(index).advantage)).toBe(Math.sign(advantage));
    },
  );

  it("returns zeros, not NaN, if the balance removes every advantage", () => {
    expect(normalizeBatch([{ advantage: -1, tokens: 3 }], 1)).toEqual([{ weight: 1, advantage: 0 }]);
  });
});
