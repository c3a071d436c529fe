import { describe, expect, it } from "vitest";
import { defineEnvironment, evaluate, rescore, scenarioIdOf } from "../../src/library/environment/index.ts";
import { ConfigError } from "../../src/base/errors.ts";
import { Trajectory, TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { sums, sumPolicy } from "./sums.ts";

/** Right in the first attempt of 1+2, in the first two of 3+4, never at 2+2. */
const sometimes = () => sumPolicy(({ a, b }, attempt) => (attempt < a && a !== b ? String(a + b) : "no"));

describe("evaluate", () => {
  it("reports mean, intervals by scenario, pass@k and each reward", async () => {
    const report = await evaluate(sums(), sometimes(), { samples: 4, k: [2, 1, 4], concurrency: 1 });
    expect(report).toMatchObject({
      environment: "sums",
      policy: "team/demo/sums:step2",
      samples: 4,
      temperature: 1,
      seed: 0,
      scenarios: 3,
      exceptions: 0,
    });
    // Right answers: 1, 3 and 0 of 4. Every answer is short, so the mean reward is 4/12 + 0.5.
    expect(report.rewards["correct"]?.mean).toBeCloseTo(1 / 3, 12);
    expect(report.rewards["short"]?.mean).toBe(1);
    expect(report.rewards["length"]?.mean).toBeCloseTo((4 * 1 + 8 * 2) / 12, 12);
    expect(report.reward.mean).toBeCloseTo(5 / 6, 12);
    // Equal clusters: the standard error comes from the three scenario means 1/4, 3/4, 0 (s² = 7/48), and t(2, 95 %) = 4.302653.
    const margin = 4.302652729911275 * Math.sqrt(7 / 48 / 3);
    expect(report.reward).toMatchObject({ clusters: 3, count: 12, level: 0.95 });
    expect(report.reward.low).toBeCloseTo(5 / 6 - margin, 6);
    expect(report.reward.high).toBeCloseTo(5 / 6 + margin, 6);
    // 1 − C(n−c, k) / C(n, k), averaged: k=1 (1/4, 3/4, 0), k=2 (1/2, 1, 0), k=4 (1, 1, 0).
    expect(report.passAtK.map(({ k }) => k)).toEqual([1, 2, 4]);
    for (const [index, value] of [1 / 3, 1 / 2, 2 / 3].entries()) expect(report.passAtK[index]?.mean).toBeCloseTo(value, 12);
    expect(report.metrics["reward/correct"]?.count).toBe(12);
    expect(report.groups.map((group) => group.metadata["scenario_id"])).toEqual(
      sums().scenarios.eval.map((each) => scenarioIdOf(sums(), each)),
    );
  });

  it("plays once and greedily by default, with the same seeds every time", async () => {
    const seeds: unknown[] = [];
    const policy = sometimes();
    const spy = {
      ...policy,
      complete: (...args: Parameters<typeof policy.complete>) => {
        seeds.push([args[0].temperature, args[0].seed]);
        return policy.complete(...args);
      },
    };
    expect((await evaluate(sums(), spy)).passAtK.map(({ k }) => k)).toEqual([1]);
    await evaluate(sums(), spy, { seed: 0 });
    expect(seeds.slice(0, 3)).toEqual(seeds.slice(3));
    expect(seeds.every((each) => (each as unknown[])[0] === 0)).toBe(true);
  });

  it("passes the best answer although the weights sum to less than 1 in floating point", async () => {
    const parts = [0.7, 0.2, 0.1].map((weight, index) => ({ name: `part${index}`, weight, score: () => 1 }));
    const report = await evaluate(sums({ rewards: [...parts, { name: "penalty", weight: -1, score: () => 0 }] }), sometimes());
    expect(report.reward.mean).toBeLessThan(1);
    expect(report.passAtK[0]?.mean).toBe(1);
  });

  it("records failed rollouts up to `maxExceptions`, and excludes a scenario without successful rollouts", async () => {
    const policy = sumPolicy(({ a, b }) => {
      if (a === 2) throw new Error("down");
      return String(a + b);
    });
    const report = await evaluate(sums(), policy, { samples: 2, maxExceptions: 2 });
    expect(report).toMatchObject({ exceptions: 2, reward: { mean: 1.5, clusters: 2 } });
    expect(report.passAtK.map(({ mean }) => mean)).toEqual([1, 1]);
    expect(report.groups[2]?.metadata["scenario_id"]).toBe(scenarioIdOf(sums(), { a: 2, b: 2 }));
    await expect(evaluate(sums(), policy)).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS" });
  });

  it("rejects options out of bounds before it plays", async () => {
    let isAsked = false;
    const policy = sumPolicy(() => {
      isAsked = true;
      return "";
    });
    const refused = [
      { samples: 0 },
      { samples: 0.5, k: 1 },
      { k: 2 },
      { k: [1, 0.5] },
      { level: 1 },
      { threshold: Number.NaN },
      { temperature: -1 },
    ];
    for (const options of refused)
      await expect(evaluate(sums(), policy, options)).rejects.toMatchObject({ code: "E_ARGUMENT", param: Object.keys(options)[0] });
    await expect(evaluate(sums(), policy, { scenarios: [] })).rejects.toThrow(ConfigError);
    await expect(evaluate(sums(), policy, { signal: AbortSignal.abort(new Error("enough")) })).rejects.toThrow("enough");
    expect(isAsked).toBe(false);
  });
});

describe("rescore", () => {
  const stored = async () => {
    const { groups } = await evaluate(sums(), sometimes(), { samples: 2, concurrency: 1 });
    return groups.map((group) => TrajectoryGroup.fromJSON(JSON.parse(JSON.stringify(group))));
  };

  it("scores stored groups with other rewards and keeps everything else", async () => {
    const groups = await stored();
    const stricter = sums({
      rewards: [{ name: "exact", weight: 2, score: ({ scenario, text }) => Number(text) === scenario.a + scenario.b }],
    });
    const foreign = groups.map((group) => TrajectoryGroup.fromJSON({ ...group.toJSON(), their_key: { nested: [1] } }));
    const again = await rescore(stricter, foreign);
    expect(again.map((group) => Reflect.get(group.toJSON(), "their_key") as unknown)).toEqual(groups.map(() => ({ nested: [1] })));
    expect(again.map((group) => group.rewards)).toEqual([
      [2, 0],
      [2, 2],
      [0, 0],
    ]);
    const [before] = groups[0]!.trajectories;
    const [after] = again[0]!.trajectories;
    expect(Object.keys(after!.metrics).filter((name) => name.startsWith("reward/"))).toEqual(["reward/exact"]);
    expect(after!.metrics["duration"]).toBe(before!.metrics["duration"]);
    expect(after!.choices).toEqual(before!.choices);
    expect(before!.reward).toBe(1.5);
    expect(again[0]!.metadata).toEqual(groups[0]!.metadata);
  });

  it("gives trajectories the same rewards with the same environment", async () => {
    const trajectories = (await stored()).flatMap((group) => group.trajectories);
    const again = await rescore(sums(), trajectories);
    expect(again.map(({ reward }) => reward)).toEqual(trajectories.map(({ reward }) => reward));
    expect(again.every((each) => each instanceof Trajectory)).toBe(true);
  });

  it("lists unknown scenarios, and accepts the scenarios of a function as an option", async () => {
    const supplied = defineEnvironment({ ...sums(), scenarios: { train: (index) => ({ a: index, b: index }), eval: [] } });
    const trajectories = (await stored()).flatMap((group) => group.trajectories);
    const bare = Trajectory.fromJSON({ messages_and_choices: [] });
    const ids = [...new Set(trajectories.map(({ metadata }) => metadata["scenario_id"]))];
    const unknown = rescore(supplied, [...trajectories, bare]);
    await expect(unknown).rejects.toMatchObject({ code: "E_DATA" });
    await expect(unknown).rejects.toThrow(
      `7 of 7 trajectories have a \`scenario_id\` that environment \`sums\` does not know: \`${ids[0]}\`, \`${ids[1]}\`, \`${ids[2]}\`, none.`,
    );
    expect(await rescore(supplied, trajectories, { scenarios: sums().scenarios.eval })).toHaveLength(6);
  });

  it("fails with the names of reward, environment and scenario, or with the signal's reason", async () => {
    const groups = await stored();
    const broken = sums({ rewards: [{ name: "broken", score: () => Number.POSITIVE_INFINITY }] });
    const id = scenarioIdOf(broken, broken.scenarios.eval[0]!);
    await expect(rescore(broken, groups)).rejects.toMatchObject({
      code: "E_REWARD",
      message: expect.stringContaining(`Reward \`broken\` of environment \`sums\`, scenario \`${id}\`,`),
    });
    await expect(rescore(sums(), groups, { signal: AbortSignal.abort(new Error("enough")) })).rejects.toThrow("enough");
  });
});
