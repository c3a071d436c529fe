import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { defineEnvironment, reward, weighted } from "../../../src/library/environment/index.ts";
import { groupPassRate, passRateTable, samplingWeight, scenarioKey, WeightedDraws } from "../../../src/training/train/batch/curriculum.ts";
import { trajectory, TrajectoryGroup } from "../../../src/base/trajectory/index.ts";

const environment = defineEnvironment<{ readonly id: string }>({
  name: "tasks",
  scenarios: { train: [{ id: "a" }], eval: [] },
  rollout: () => Promise.reject(new Error("not played")),
  rewards: [
    weighted(
      2,
      reward("right", () => 1),
    ),
    weighted(
      -1,
      reward("penalty", () => 1),
    ),
  ],
});

function group(rewards: readonly number[], metric?: readonly (number | boolean)[]): TrajectoryGroup {
  const trajectories = rewards.map((each, index) =>
    trajectory({ messages: [{ role: "user", content: "q" }] }).finish({
      reward: each,
      metrics: metric?.[index] === undefined ? {} : { passed: metric[index] as number | boolean },
    }),
  );
  return new TrajectoryGroup({ trajectories, metadata: { scenario_index: 0 } });
}

describe("the running pass rates", () => {
  it("average the groups of earlier steps with decaying weights and a prior at the target", () => {
    const steps = [
      {
        step: 0,
        passRates: [
          { key: "a", rate: 1 },
          { key: "b", rate: 0 },
        ],
      },
      {
        step: 2,
        passRates: [
          { key: "a", rate: 0 },
          { key: "a", rate: 0.5 },
        ],
      },
      { step: 3, passRates: [{ key: "a", rate: 1 }] },
    ];
    const table = passRateTable(steps, 3, { decay: 0.5, target: 0.4 });
    expect(table.get("a")).toBeCloseTo((0.25 * 1 + 0 + 0.5 + 0.25 * 0.4) / (0.25 + 1 + 1 + 0.25), 14);
    expect(table.get("b")).toBeCloseTo((0.25 * 0.4) / (0.25 + 0.25), 14);
    expect(table.has("c")).toBe(false);
  });

  it("are separate for each environment", () => {
    const passRates = [
      { environment: "x", key: "a", rate: 1 },
      { environment: "y", key: "a", rate: 0 },
    ];
    const of = (name: string) => passRateTable([{ step: 0, passRates }], 1, {}, name).get("a");
    expect(of("x")).toBeCloseTo((1 + 0.125) / 1.25, 14);
    expect(of("y")).toBeCloseTo(0.125 / 1.25, 14);
  });
});

describe("the sampling weight", () => {
  it("is 4p(1 − p) plus the floor by default", () => {
    for (const p of [0, 0.1, 0.5, 0.8, 1]) expect(samplingWeight(p, {})).toBeCloseTo(4 * p * (1 - p) + 0.05, 14);
  });

  test.prop([fc.double({ min: 0.05, max: 0.95, noNaN: true }), fc.double({ min: 0, max: 1, noNaN: true })])(
    "is at most 1 plus the floor, which it is at the target, and the floor at 0 and 1",
    (target, p) => {
      const options = { target, floor: 0.01 };
      expect(samplingWeight(target, options)).toBeCloseTo(1.01, 12);
      expect(samplingWeight(p, options)).toBeLessThanOrEqual(1.01 + 1e-12);
      expect(samplingWeight(0, options)).toBe(0.01);
      expect(samplingWeight(1, options)).toBe(0.01);
    },
  );
});

describe("the draws of a step", () => {
  const weights = fc.array(fc.double({ min: 0.01, max: 1, noNaN: true }), { minLength: 1, maxLength: 12 });
  test.prop([weights, fc.integer(), fc.nat(1e9)])(
    "take every scenario once before any twice, as a function of seed and index",
    (list, seed, from) => {
      const draw = () => {
        const draws = new WeightedDraws(list, { seed, environment: 0 });
        return Array.from({ length: 2 * list.length }, (_, k) => draws.draw(from + k));
      };
      const drawn = draw();
      const all = list.map((_, position) => position);
      expect(drawn.slice(0, list.length).toSorted((a, b) => a - b)).toEqual(all);
      expect(drawn.slice(list.length).toSorted((a, b) => a - b)).toEqual(all);
      expect(draw()).toEqual(drawn);
    },
  );

  it("draw in proportion to the weights, differently for each environment and seed", () => {
    const first = (seed: number, environment: number) =>
      Array.from({ length: 4000 }, (_, index) => new WeightedDraws([1, 3, 4], { seed, environment }).draw(index));
    const share = (drawn: readonly number[], position: number) => drawn.filter((each) => each === position).length / drawn.length;
    const drawn = first(3, 0);
    for (const [position, expected] of [1 / 8, 3 / 8, 1 / 2].entries())
      expect(Math.abs(share(drawn, position) - expected)).toBeLessThan(0.03);
    expect(first(3, 1)).not.toEqual(drawn);
    expect(first(4, 0)).not.toEqual(drawn);
  });
});

describe("the pass rate of a group", () => {
  it("is the mean reward relative to the sum of the positive weights, clipped to [0, 1]", () => {
    expect(groupPassRate(group([2, 0, 1]), environment, undefined)).toBeCloseTo(0.5, 14);
    expect(groupPassRate(group([-1, -1]), environment, undefined)).toBe(0);
    expect(groupPassRate(group([3, 3]), environment, undefined)).toBe(1);
    expect(groupPassRate(group([]), environment, undefined)).toBeNull();
  });

  it("is the mean of the metric if one is named, and an error if no trajectory has it", () => {
    expect(groupPassRate(group([0, 0, 0, 0], [true, false, 1, 0]), environment, "passed")).toBe(0.5);
    expect(() => groupPassRate(group([1]), environment, "passed")).toThrow(/have the metric `passed`.*got duration/);
  });
});

describe("the key of a scenario", () => {
  it("is the scenario's id, or the result of `key`, which must be a text", () => {
    expect(scenarioKey({}, environment, { id: "a" })).toBe("a");
    expect(scenarioKey({ key: ({ id }, name) => `${name}:${id.length}` }, environment, { id: "abc" })).toBe("tasks:3");
    expect(() => scenarioKey({ key: () => 3 as unknown as string }, environment, { id: "a" })).toThrow(/`curriculum.key` to return a text/);
  });
});
