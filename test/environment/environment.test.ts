import { describe, expect, it } from "vitest";
import {
  defineEnvironment,
  environmentRollout,
  scenarioIdOf,
  trainScenarios,
  weighted,
  type EnvironmentDefinition,
} from "../../src/library/environment/index.ts";
import { ArgumentError, ConfigError } from "../../src/base/errors.ts";
import { gatherTrajectoryGroups } from "../../src/library/rollout/index.ts";
import { sums, type Sum, sumPolicy } from "./sums.ts";

describe("defineEnvironment", () => {
  const bad: [string, object][] = [
    ["no name", { name: " " }],
    ["no training scenarios", { scenarios: { train: [], eval: [] } }],
    ["no list of eval scenarios", { scenarios: { train: [{ a: 1, b: 1 }] } }],
    ["no scenarios", { scenarios: undefined }],
    ["no rollout", { rollout: undefined }],
    ["gold that is no function", { gold: "5" }],
    ["two rewards of one name", { rewards: [{ name: "x", score: () => 1 }, weighted(2, { name: "x", score: () => 1 })] }],
    [
      "a reward without a name",
      {
        rewards: [
          (
            () => () =>
              1
          )(),
        ],
      },
    ],
    ["a weight that is not finite", { rewards: [{ name: "x", weight: Infinity, score: () => 1 }] }],
  ];
  it.each(bad)("rejects %s", (_, change) => {
    expect(() => defineEnvironment({ ...sums(), ...change } as EnvironmentDefinition<Sum>)).toThrow(ConfigError);
  });
});

describe("environmentRollout", () => {
  it("scores a rollout: weighted total, raw values as metrics, the scenario's id", async () => {
    const environment = sums();
    const groups = await gatherTrajectoryGroups(environment.scenarios.eval, environmentRollout(environment), {
      policy: sumPolicy(({ a, b }) => String(a + b)),
      groupSize: 1,
      temperature: 0.5,
      seed: 4,
    });
    expect(groups.map((group) => group.rewards)).toEqual([[1.5], [1.5], [1.5]]);
    const [first] = groups[0]!.trajectories;
    expect(first?.metrics).toMatchObject({ "reward/correct": 1, "reward/short": 1, "reward/length": 1 });
    expect(first?.metadata["scenario_id"]).toBe(scenarioIdOf(environment, environment.scenarios.eval[0]!));
    expect(first?.choices[0]).toMatchObject({ temperature: 0.5, policy_version: 2 });
  });

  it("fails only the rollout with a reward that throws or is not finite, and names reward, environment and scenario", async () => {
    const environment = sums({
      rewards: [
        {
          name: "fussy",
          score: ({ scenario }) => {
            if (scenario.a === 1) throw new TypeError("no ones");
            return scenario.a === 2 ? Number.NaN : 1;
          },
        },
      ],
      scenarioId: ({ a, b }) => `${a}+${b}`,
    });
    const scenarios = [1, 2, 3].map((a) => ({ a, b: 0 }));
    const groups = await gatherTrajectoryGroups(scenarios, environmentRollout(environment), {
      policy: sumPolicy(() => "x"),
      groupSize: 1,
      maxExceptions: 2,
    });
    expect(groups.map((group) => group.rewards)).toEqual([[], [], [1]]);
    const [thrown, bad] = groups.flatMap((group) => group.exceptions);
    expect(thrown).toMatchObject({
      type: "RewardError",
      message: "Reward `fussy` of environment `sums`, scenario `1+0`, failed with TypeError: no ones",
      traceback: expect.stringContaining("[cause] TypeError: no ones"),
    });
    expect(bad?.message).toBe(
      "Reward `fussy` of environment `sums`, scenario `2+0`, must give a finite number or a boolean, got `NaN` (number)",
    );
  });

  it("retries a rollout after its judge was overloaded", async () => {
    let calls = 0;
    const environment = sums({
      rewards: [{ name: "judge", score: () => (calls++ === 0 ? Promise.reject(Object.assign(new Error("busy"), { status: 503 })) : 1) }],
    });
    const groups = await gatherTrajectoryGroups([{ a: 1, b: 1 }], environmentRollout(environment), {
      policy: sumPolicy(() => "x"),
      groupSize: 1,
      retries: 1,
    });
    expect(groups[0]?.rewards).toEqual([1]);
  });

  it("rethrows an abort in a reward unchanged", async () => {
    const controller = new AbortController();
    const reason = new DOMException("enough", "AbortError");
    const environment = sums({
      rewards: [
        {
          name: "slow",
          score: ({ signal }) => {
            controller.abort(reason);
            signal.throwIfAborted();
            return 1;
          },
        },
      ],
    });
    const run = gatherTrajectoryGroups([{ a: 1, b: 1 }], environmentRollout(environment), {
      policy: sumPolicy(() => "x"),
      signal: controller.signal,
    });
    await expect(run).rejects.toBe(reason);
  });

  it("accepts a finished trajectory: rewards replace its reward, which stays without rewards", async () => {
    const finishing = sums();
    const rollout: typeof finishing.rollout = async (scenario, context) => {
      const t = await finishing.rollout(scenario, context);
      return "finish" in t ? t.finish({ reward: 7, metrics: { own: 2 } }) : t;
    };
    const played = async (rewards: EnvironmentDefinition<Sum>["rewards"]) => {
      const environment = defineEnvironment({ ...finishing, rollout, rewards });
      const options = { policy: sumPolicy(() => "3"), groupSize: 1 };
      return (await gatherTrajectoryGroups([{ a: 1, b: 2 }], environmentRollout(environment), options))[0]!.trajectories[0]!;
    };
    expect(await played([])).toMatchObject({ reward: 7, metrics: { own: 2 } });
    expect(await played([{ name: "half", weight: 0.5, score: () => true }])).toMatchObject({
      reward: 0.5,
      metrics: { own: 2, "reward/half": 1 },
    });
  });

  it("names the missing return value if a rollout returns no trajectory or no reward", async () => {
    const lost = defineEnvironment({ ...sums(), rollout: async () => undefined as never });
    const without = defineEnvironment({ ...sums(), rewards: [] });
    for (const [environment, message] of [
      [lost, /end it with `return t`/],
      [without, /has no rewards, so its rollout must give one/],
    ] as const) {
      const run = gatherTrajectoryGroups([{ a: 1, b: 2 }], environmentRollout(environment), { policy: sumPolicy(() => "3"), groupSize: 1 });
      await expect(run).rejects.toThrow(message);
    }
  });
});

describe("scenarioIdOf", () => {
  it("is the scenario's own id, a hash of its JSON, or the result of `scenarioId`", () => {
    expect(scenarioIdOf({ name: "x" }, { id: "seven" })).toBe("seven");
    // printf '{"a":1,"b":2}' | sha256sum
    expect(scenarioIdOf({ name: "x" }, { a: 1, b: 2 })).toBe("43258cff783fe703");
    expect(scenarioIdOf({ name: "x", scenarioId: ({ a }) => `a${a}` }, { a: 1 })).toBe("a1");
    expect(() => scenarioIdOf({ name: "x", scenarioId: () => "" }, 1)).toThrow(ArgumentError);
  });
});

describe("trainScenarios", () => {
  const letters = "abcdefghij".split("");

  it("returns every item once per pass, each pass in another order, from any start", () => {
    const all = trainScenarios(letters, { seed: 7, count: 35 });
    const passes = [0, 10, 20].map((start) => all.slice(start, start + 10).join(""));
    for (const pass of passes) expect(pass.split("").toSorted().join("")).toBe("abcdefghij");
    expect(new Set(passes).size).toBe(3);
    for (const [from, count] of [
      [0, 0],
      [3, 4],
      [8, 5],
      [9, 26],
      [20, 15],
    ] as const) {
      expect(trainScenarios(letters, { seed: 7, from, count })).toEqual(all.slice(from, from + count));
    }
    expect(trainScenarios(letters, { seed: 8, count: 35 })).not.toEqual(all);
    expect(letters.join("")).toBe("abcdefghij");
  });

  it("calls a function with the indices", () => {
    expect(trainScenarios((index) => index * 2, { from: 5, count: 3 })).toEqual([10, 12, 14]);
  });

  it.each([
    ["an empty list", () => trainScenarios([], { count: 1 })],
    ["a negative count", () => trainScenarios(["a"], { count: -1 })],
    ["half a start", () => trainScenarios(["a"], { from: 0.5, count: 1 })],
    ["a seed that is no integer", () => trainScenarios(["a"], { seed: 0.5, count: 1 })],
  ])("rejects %s", (_, run) => {
    expect(run).toThrow(ArgumentError);
  });
});
