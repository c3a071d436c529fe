import { expect, it } from "vitest";
import { buildRlBatch, groupAdvantages } from "../../src/learner/index.ts";
import { preflight, trajectoryGroups } from "../../src/base/trajectory/index.ts";
import { isTrainableGroup } from "../../src/base/trajectory/trainable.ts";
import { group, sampled } from "./samples.ts";

/** Rewards and whether they can teach anything. Differences in the last digits do not count. */
const CASES: readonly (readonly [readonly number[], boolean])[] = [
  [[], false],
  [[1], false],
  [[1, 1, 1], false],
  [[0.1 + 0.2, 0.3], false],
  [[1e6 * (0.1 + 0.2), 1e6 * 0.3], false],
  [[1, 1 + 1e-9], true],
  [[0, 1], true],
  [[-1, -1, 0], true],
];

it.each(CASES)("%j: %s, as for advantages", (rewards, expected) => {
  expect(isTrainableGroup(rewards)).toBe(expected);
  expect(groupAdvantages(rewards).some((value) => value !== 0)).toBe(expected);
});

it.each(CASES)("%j: %s, as for statistics, preflight and the learner", (rewards, expected) => {
  const one = group(...rewards.map((reward, index) => sampled(reward, `text ${index}`)));
  expect(trajectoryGroups([one]).stats.trainableGroups).toBe(expected ? 1 : 0);
  expect(preflight([one.toJSON()]).some(({ severity }) => severity === "fatal")).toBe(!expected);
  const good = group(sampled(0), sampled(1));
  const { metrics } = buildRlBatch([good.toJSON(), one.toJSON()], null, { contextLength: 64 });
  expect(metrics["advantage/zero_groups"]).toBe(expected ? 0 : 1);
});

it("isTrainableGroup accepts a group of any size", () => {
  expect(isTrainableGroup(new Array<number>(300_000).fill(1))).toBe(false);
});
