import { describe, expect, it } from "vitest";
import {
  defineEnvironment,
  environmentRollout,
  evaluate,
  rescore,
  validate,
  type EnvironmentDefinition,
  type GroupReward,
  type GroupRewardInput,
  type GroupRewardResult,
} from "../../src/library/environment/index.ts";
import { ConfigError } from "../../src/base/errors.ts";
import { gatherTrajectoryGroups, TooManyExceptionsError } from "../../src/library/rollout/index.ts";
import { TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { sums, sumPolicy, type Sum } from "./sums.ts";

/** Ranks the answers of a group by length: the shortest earns 1, the longest 0. */
const shortest: GroupReward<Sum> = {
  name: "shortest",
  weight: 2,
  scoreGroup({ trajectories }) {
    const lengths = trajectories.map(({ lastText }) => lastText.length);
    const [min, max] = [Math.min(...lengths), Math.max(...lengths)];
    return lengths.map((length) => (max === min ? 1 : (max - length) / (max - min)));
  },
};

const correct = { name: "correct", score: sums().rewards[0]!.score };

/** Policy with answers to one question that are 1, 2, 3 … characters longer than the sum. */
const growing = sumPolicy(({ a, b }, attempt) => String(a + b) + "!".repeat(attempt));

async function play(change: Partial<EnvironmentDefinition<Sum>>, options: object = {}) {
  const environment = sums(change);
  const played = { policy: sumPolicy(({ a, b }, attempt) => String(a + b) + "!".repeat(attempt)), groupSize: 3, seed: 5, concurrency: 1 };
  const groups = await gatherTrajectoryGroups([{ a: 1, b: 2 }], environmentRollout(environment), { ...played, ...options });
  return { environment, group: groups[0]! };
}

/** Group reward with the given result. */
function returns(result: unknown): EnvironmentDefinition<Sum>["groupRewards"] {
  return [{ name: "bad", scoreGroup: () => result as GroupRewardResult }];
}

describe("group rewards", () => {
  it("adds weighted values to the rewards of each trajectory, and records every part", async () => {
    const { group } = await play({ rewards: [correct], groupRewards: [shortest] });
    expect(group.rewards).toEqual([3, 1, 0]);
    expect(
      group.trajectories.map(({ metrics }) => [metrics["reward/correct"], metrics["reward/shortest"], metrics["independent_reward"]]),
    ).toEqual([
      [1, 1, 1],
      [0, 0.5, 0],
      [0, 0, 0],
    ]);
  });

  it("replaces the reward that a rollout has set itself, which is recorded as `independent_reward`", async () => {
    const base = sums();
    const rollout: typeof base.rollout = async (scenario, context) => {
      const t = await base.rollout(scenario, context);
      return "finish" in t ? t.finish({ reward: 7 }) : t;
    };
    const { group } = await play({ rollout, rewards: [], groupRewards: [shortest] });
    expect(group.rewards).toEqual([2, 1, 0]);
    expect(group.trajectories.map(({ metrics }) => metrics["independent_reward"])).toEqual([7, 7, 7]);
  });

  it("accepts named functions, scores with metrics and logs, and data about the group", async () => {
    function judged({ trajectories }: GroupRewardInput<Sum>) {
      return {
        scores: trajectories.map((_, index) => ({ value: index === 0, metrics: { rank: index }, logs: [`rank ${index}`] })),
        metrics: { calls: 1 },
        logs: ["judged"],
      };
    }
    const { group } = await play({ rewards: [], groupRewards: [judged] });
    expect(group.rewards).toEqual([1, 0, 0]);
    expect(group.trajectories.map(({ metrics, logs }) => [metrics["rank"], logs])).toEqual([
      [0, ["rank 0"]],
      [1, ["rank 1"]],
      [2, ["rank 2"]],
    ]);
    expect([group.metrics, group.logs]).toEqual([{ calls: 1 }, ["judged"]]);
  });

  it.each<[string, unknown, RegExp]>([
    ["too few values", [1, 2], /must give one value per trajectory \(3\), got 2 values/],
    ["no list", 1, /must give one value per trajectory \(3\), got number/],
    ["nothing", undefined, /got undefined/],
  ])("fails every rollout of the group for %s", async (_, result, message) => {
    const { group } = await play({ groupRewards: returns(result) }, { maxExceptions: 3 });
    expect(group.trajectories).toHaveLength(0);
    expect(group.exceptions.map(({ type }) => type)).toEqual(["RewardError", "RewardError", "RewardError"]);
    expect(group.exceptions[0]?.message).toMatch(message);
  });

  it("fails every rollout of the group if a group reward throws, with the cause", async () => {
    const throwing = () => {
      throw new TypeError("no judge");
    };
    const { group } = await play({ groupRewards: [{ name: "judge", scoreGroup: throwing }] }, { maxExceptions: 3 });
    expect(group.exceptions).toHaveLength(3);
    expect(group.exceptions[0]?.message).toMatch(
      /^Group reward `judge` of environment `sums`, scenario `.*` failed with TypeError: no judge$/,
    );
    expect(group.exceptions[0]?.traceback).toContain("[cause] TypeError: no judge");
  });

  it("fails only the rollouts with an error or an invalid value", async () => {
    const { group } = await play({ groupRewards: returns([new RangeError("unclear"), Number.NaN, 1]) }, { maxExceptions: 2 });
    expect(group.rewards).toEqual([1]);
    expect(group.exceptions.map(({ message }) => message)).toEqual([
      expect.stringMatching(/failed with RangeError: unclear$/),
      expect.stringMatching(/must give a finite number or a boolean, got `NaN` \(number\)$/),
    ]);
  });

  it("counts rollouts that fail in a group reward against `maxExceptions`", async () => {
    await expect(play({ groupRewards: returns([]) }, { maxExceptions: 2 })).rejects.toThrow(TooManyExceptionsError);
  });

  it("rethrows an abort unchanged", async () => {
    const controller = new AbortController();
    const reason = new DOMException("enough", "AbortError");
    const waiting = ({ signal }: GroupRewardInput<Sum>) => {
      controller.abort(reason);
      signal.throwIfAborted();
      return [];
    };
    const run = play({ groupRewards: [{ name: "slow", scoreGroup: waiting }] }, { signal: controller.signal });
    await expect(run).rejects.toBe(reason);
  });

  it("receives the same seed for the same group of the same run, and another for another run", async () => {
    const seeds: number[] = [];
    const recording = ({ seed, trajectories }: GroupRewardInput<Sum>) => (seeds.push(seed), trajectories.map(() => 0));
    const groupRewards = [{ name: "recording", scoreGroup: recording }];
    for (const seed of [5, 5, 6]) await play({ groupRewards }, { seed });
    expect(seeds[0]).toBe(seeds[1]);
    expect(seeds[2]).not.toBe(seeds[0]);
  });

  it("is not called for a group in which every rollout failed", async () => {
    let calls = 0;
    const counting = () => (calls++, []);
    const rollout = () => Promise.reject(new Error("down"));
    const { group } = await play({ rollout, groupRewards: [{ name: "counting", scoreGroup: counting }] }, { maxExceptions: 3 });
    expect([group.exceptions.length, calls]).toEqual([3, 0]);
  });

  it.each<[string, object]>([
    ["no list", { groupRewards: shortest }],
    ["a function without a name", { groupRewards: [(() => () => [])()] }],
    ["no function", { groupRewards: [{ name: "x", scoreGroup: 1 }] }],
    ["a weight that is not finite", { groupRewards: [{ ...shortest, weight: Number.NaN }] }],
    ["the name of another reward", { groupRewards: [{ ...shortest, name: "correct" }] }],
  ])("rejects %s", (_, change) => {
    expect(() => defineEnvironment({ ...sums(), ...change } as EnvironmentDefinition<Sum>)).toThrow(ConfigError);
  });
});

describe("group rewards of stored groups", () => {
  it("gives the same rewards when a group is scored again, also through JSON", async () => {
    for (const rewards of [[correct], []]) {
      const { environment, group } = await play({ rewards, groupRewards: [shortest] });
      const [again] = await rescore(environment, [TrajectoryGroup.fromJSON(JSON.parse(JSON.stringify(group)))]);
      expect(again?.toJSON()).toEqual(group.toJSON());
    }
  });

  it("removes the values of group rewards that the environment no longer has", async () => {
    const { group } = await play({ rewards: [], groupRewards: [shortest] });
    const [again] = await rescore(sums({ rewards: [], groupRewards: [{ ...shortest, name: "other" }] }), [group]);
    expect(again?.rewards).toEqual([2, 1, 0]);
    expect(Object.keys(again!.trajectories[0]!.metrics)).not.toContain("reward/shortest");
  });

  it("rejects trajectories without groups, and groups of several scenarios", async () => {
    const { environment, group } = await play({ groupRewards: [shortest], scenarioId: ({ a }) => `a${a}` });
    await expect(rescore(environment, group.trajectories)).rejects.toThrow(/need whole groups/);
    const other = group.trajectories[0]!.with({ metadata: { scenario_id: "a3" } });
    const mixed = group.with({ trajectories: [...group.trajectories, other] });
    await expect(rescore(environment, [mixed])).rejects.toThrow("of one scenario, got 2 values of `scenario_id`");
  });
});

describe("evaluate with group rewards", () => {
  it("estimates every group reward, and passes rollouts with the highest total", async () => {
    const environment = sums({ rewards: [correct], groupRewards: [shortest] });
    const { rewards, threshold, passAtK } = await evaluate(environment, growing, { samples: 3, k: 1, concurrency: 1 });
    expect(Object.keys(rewards)).toEqual(["correct", "shortest"]);
    expect(rewards["shortest"]?.mean).toBeCloseTo(0.5);
    expect(threshold).toBeCloseTo(3);
    expect(passAtK[0]?.mean).toBeCloseTo(1 / 3);
  });
});

describe("validate with group rewards", () => {
  const isRight = ({ scenario, trajectories }: GroupRewardInput<Sum>) =>
    trajectories.map(({ lastText }) => lastText === String(scenario.a + scenario.b));

  it("scores the right answer and an empty one as a group", async () => {
    const report = await validate(sums({ rewards: [], groupRewards: [{ name: "right", scoreGroup: isRight }] }));
    expect(report).toMatchObject({ isValid: true, expected: 1, findings: [] });
    expect(report.scores[0]).toMatchObject({ reward: 1, emptyReward: 0, rewards: { right: 1 } });
  });

  it("reports a group reward that depends on the order of the rollouts", async () => {
    const first = ({ trajectories }: GroupRewardInput<Sum>) => trajectories.map((_, index) => index === 0);
    const { findings } = await validate(sums({ rewards: [], groupRewards: [{ name: "first", scoreGroup: first }] }));
    expect(findings.map(({ code, count }) => [code, count])).toEqual([["order-changes-reward", 7]]);
  });

  it("reports a group reward that fails", async () => {
    const { findings } = await validate(sums({ rewards: [], groupRewards: returns([1]) }), { expected: 1 });
    expect(findings[0]).toMatchObject({ code: "reward-failed", severity: "fatal", count: 7 });
    expect(findings[0]?.message).toContain("one value per trajectory (2), got 1 values");
  });
});
