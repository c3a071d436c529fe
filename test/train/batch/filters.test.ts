import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import type { AssistantChoice } from "../../../src/base/schema/index.ts";
import { selectGroups } from "../../../src/training/train/batch/filters.ts";
import { Trajectory, TrajectoryGroup } from "../../../src/base/trajectory/index.ts";

interface Rollout {
  readonly reward: number;
  readonly tokens: number;
}

function choice(tokens: number): AssistantChoice {
  return {
    index: 0,
    message: { role: "assistant", content: "x" },
    finish_reason: "stop",
    token_ids: Array.from({ length: tokens }, () => 1),
  };
}

function group(index: number, rollouts: readonly Rollout[], policyVersion = 5): TrajectoryGroup {
  const trajectories = rollouts.map(({ reward, tokens }) =>
    Trajectory.fromJSON({ messages_and_choices: [{ role: "user", content: "q" }, choice(tokens)], reward }),
  );
  return new TrajectoryGroup({ trajectories, metadata: { scenario_index: index, policy_version: policyVersion } });
}

const indices = (groups: readonly TrajectoryGroup[]) => groups.map(({ metadata }) => metadata["scenario_index"]);

describe("selectGroups", () => {
  it("keeps all groups without filters, in order of scenario index", () => {
    const groups = [group(7, [{ reward: 1, tokens: 3 }]), group(2, [{ reward: 0, tokens: 3 }]), group(4, [])];
    const selection = selectGroups(groups, {}, 5);
    expect(indices(selection.kept)).toEqual([2, 4, 7]);
    expect(selection).toMatchObject({ discarded: {}, removed: {}, discardedScenarios: [] });
  });

  it("discards groups with equal rewards and groups of fewer than two, with `constant`", () => {
    const groups = [
      group(0, [
        { reward: 1, tokens: 1 },
        { reward: 0, tokens: 1 },
      ]),
      group(1, [
        { reward: 0.3, tokens: 1 },
        { reward: 0.3, tokens: 1 },
      ]),
      group(2, [{ reward: 1, tokens: 1 }]),
      group(3, []),
    ];
    const selection = selectGroups(groups, { constant: true }, 5);
    expect(indices(selection.kept)).toEqual([0]);
    expect(selection).toMatchObject({ discarded: { constant: 1, small: 2 }, discardedScenarios: [1, 2, 3] });
  });

  it("removes trajectories outside the range of tokens, bounds included, before it judges their group", () => {
    const groups = [
      group(0, [
        { reward: 1, tokens: 2 },
        { reward: 0, tokens: 4 },
        { reward: 0, tokens: 1 },
        { reward: 0, tokens: 5 },
      ]),
      group(1, [
        { reward: 1, tokens: 9 },
        { reward: 0, tokens: 3 },
        { reward: 0, tokens: 3 },
      ]),
    ];
    const selection = selectGroups(groups, { constant: true, minCompletionTokens: 2, maxCompletionTokens: 4 }, 5);
    expect(selection.kept.map(({ rewards }) => rewards)).toEqual([[1, 0]]);
    expect(selection).toMatchObject({ removed: { short: 1, long: 2 }, discarded: { constant: 1 }, discardedScenarios: [1] });
    expect(selection.kept[0]?.trajectories[1]).toBe(groups[0]?.trajectories[1]);
  });

  it("discards groups that are more than `maxAge` steps old", () => {
    const rollouts = [
      { reward: 1, tokens: 1 },
      { reward: 0, tokens: 1 },
    ];
    const selection = selectGroups([group(0, rollouts, 3), group(1, rollouts, 2)], { maxAge: 2 }, 5);
    expect(indices(selection.kept)).toEqual([0]);
    expect(selection).toMatchObject({ discarded: { old: 1 }, discardedScenarios: [1] });
  });

  const rollouts = fc.array(fc.record({ reward: fc.integer({ min: 0, max: 2 }), tokens: fc.nat(6) }), { maxLength: 5 });
  const filters = fc.record(
    { constant: fc.boolean(), minCompletionTokens: fc.nat(3), maxCompletionTokens: fc.integer({ min: 3, max: 6 }), maxAge: fc.nat(3) },
    { requiredKeys: [] },
  );
  test.prop([fc.array(fc.tuple(rollouts, fc.integer({ min: 1, max: 5 })), { maxLength: 8 }), filters])(
    "keeps or discards every group once, counts every removed trajectory, and does not depend on the order of the groups",
    (parts, options) => {
      const groups = parts.map(([each, version], index) => group(index, each, version));
      const selection = selectGroups(groups, options, 5);
      expect([...indices(selection.kept), ...selection.discardedScenarios].toSorted((a, b) => Number(a) - Number(b))).toEqual(
        indices(groups),
      );
      const sum = (counts: Readonly<Record<string, number>>) => Object.values(counts).reduce((total, count) => total + count, 0);
      expect(sum(selection.discarded)).toBe(selection.discardedScenarios.length);
      const { minCompletionTokens: min = 0, maxCompletionTokens: max = Infinity } = options;
      expect(sum(selection.removed)).toBe(parts.flatMap(([each]) => each).filter(({ tokens }) => tokens < min || tokens > max).length);
      if (options.constant === true) for (const { rewards } of selection.kept) expect(new Set(rewards).size).toBeGreaterThan(1);
      expect(selectGroups(groups.toReversed(), options, 5)).toEqual(selection);
    },
  );
});
