import { fc, test as propertyTest } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { buildRlBatch, groupAdvantages, groupTurnAdvantages, turnReturns } from "../../src/learner/index.ts";
import { choice, group } from "./helpers.ts";

const limits = { contextLength: 64 };

describe("turnReturns", () => {
  it("sums the rewards of each turn and later turns, and adds the trajectory's reward", () => {
    expect(turnReturns(1, [0.5, 0.25, 0])).toEqual([1, 0.5, 0.25]);
    expect(turnReturns(2, [0, 0])).toEqual([2, 2]);
    expect(turnReturns(0, [1, -1])).toEqual([0, -1]);
    expect(turnReturns(1, [])).toEqual([]);
  });
});

describe("groupTurnAdvantages", () => {
  it("subtracts the mean over trajectories from each return and divides by the deviation", () => {
    // Means 1.5 and 0: the mean is 0.75, the squares are ((1.25² + 0.25²)/2 + 0.75²)/2.
    const deviation = Math.sqrt(((1.25 ** 2 + 0.25 ** 2) / 2 + 0.75 ** 2) / 2) + 1e-6;
    const [first, second] = groupTurnAdvantages([[2, 1], [0]]);
    expect(first?.[0]).toBeCloseTo(1.25 / deviation, 12);
    expect(first?.[1]).toBeCloseTo(0.25 / deviation, 12);
    expect(second?.[0]).toBeCloseTo(-0.75 / deviation, 12);
    expect(groupTurnAdvantages([[2, 1], [0]], { scale: false, baseline: "leave_one_out" }).map((turns) => [...turns])).toEqual([
      [2, 1],
      [-1.5],
    ]);
  });

  const reward = fc.integer({ min: -8, max: 8 }).map((value) => value / 4);
  propertyTest.prop([
    fc.array(fc.tuple(reward, fc.integer({ min: 1, max: 4 })), { minLength: 1, maxLength: 6 }),
    fc.record({
      scale: fc.boolean(),
      baseline: fc.constantFrom("mean" as const, "leave_one_out" as const),
      deviation: fc.constantFrom("population" as const, "sample" as const),
    }),
  ])("equals the trajectory's advantage if no turn has a reward", (trajectories, options) => {
    const turns = groupTurnAdvantages(
      trajectories.map(([value, count]) => turnReturns(value, Array<number>(count).fill(0))),
      options,
    );
    const whole = groupAdvantages(
      trajectories.map(([value]) => value),
      options,
    );
    turns.forEach((each, index) => each.forEach((value) => expect(value).toBeCloseTo(whole[index] as number, 9)));
  });

  it("is zero if all returns are equal", () => {
    expect(groupTurnAdvantages([[1, 1], [1]]).map((turns) => [...turns])).toEqual([[0, 0], [0]]);
    expect(groupTurnAdvantages([[1, 0.5]]).map((turns) => [...turns])).toEqual([[0, 0]]);
  });
});

describe("buildRlBatch with `turn_rewards`", () => {
  const rewarded = (prompt: readonly number[], sampled: readonly number[], reward: number) => ({ ...choice(prompt, sampled), reward });
  const groups = [
    group(
      { reward: 1, choices: [rewarded([1], [2, 3], 1), rewarded([1, 2, 3, 4], [5], 0)], extra: [[rewarded([9], [8], 0)]] },
      { reward: 0, choices: [choice([1], [6])] },
    ),
  ];

  it("gives tokens the advantage of their turn, with mean magnitude 1 over the batch", () => {
    const { rows, metrics } = buildRlBatch(groups, { turn_rewards: true, scale_rewards: false }, limits);
    // Returns 1, 0, 0 and 0; means 1/3 and 0, so the mean is 1/6.
    const advantages = rows.map((row) => [...row.advantages!]);
    const unit = advantages[0]![1]! / 5;
    expect(unit).toBeGreaterThan(0);
    const expected = [
      [0, 5, 5, 0, -1],
      [0, -1],
      [0, -1],
    ];
    expected.forEach((row, index) => row.forEach((value, t) => expect(advantages[index]?.[t]).toBeCloseTo(value * unit, 5)));
    let size = 0;
    rows.forEach((row) => row.weights.forEach((weight, t) => (size += weight * Math.abs(row.advantages![t]!))));
    expect(size).toBeCloseTo(1, 5);
    // A trajectory of four trained tokens weighs as much as one of one.
    const weightOf = (index: number) => rows[index]!.weights.reduce((sum, weight) => sum + weight, 0);
    expect(weightOf(0) + weightOf(1)).toBeCloseTo(weightOf(2), 5);
    expect(metrics).toMatchObject({ "data/trainable_trajectories": 2, "reward/mean": 0.5 });
  });

  it("ignores the rewards of turns without the setting", () => {
    const { rows } = buildRlBatch(groups, {}, limits);
    const [first] = rows.map((row) => [...row.advantages!]);
    expect(first?.[1]).toBe(first?.[4]);
  });

  it("equals the batch without the setting if no turn has a reward", () => {
    const plain = [
      group({ reward: 1, choices: [choice([1], [2, 3]), choice([1, 2, 3, 4], [5])] }, { reward: 0, choices: [choice([1], [6])] }),
    ];
    const [turns, whole] = [{ turn_rewards: true }, {}].map((config) => buildRlBatch(plain, config, limits).rows);
    turns!.forEach((row, index) => {
      row.advantages!.forEach((value, t) => expect(value).toBeCloseTo(whole![index]!.advantages![t]!, 6));
      row.weights.forEach((value, t) => expect(value).toBeCloseTo(whole![index]!.weights[t]!, 6));
    });
  });
});
