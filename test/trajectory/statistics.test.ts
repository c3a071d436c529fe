import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { summarize, TrajectoryGroup, trajectoryGroups } from "../../src/trajectory/index.ts";
import { group, sampled } from "./samples.ts";

describe("summarize", () => {
  it("gives population deviation and interpolated quantiles", () => {
    expect(summarize([4, 1, 3, 2])).toEqual({
      count: 4,
      mean: 2.5,
      std: Math.sqrt(1.25),
      min: 1,
      p25: 1.75,
      median: 2.5,
      p75: 3.25,
      max: 4,
    });
    expect(summarize([]).mean).toBeNaN();
  });

  test.prop([fc.array(fc.double({ min: -1e6, max: 1e6, noNaN: true }), { minLength: 1 })])(
    "is ordered and does not modify its input",
    (values) => {
      const copy = [...values];
      const { min, p25, median, p75, max, std } = summarize(values);
      expect(values).toEqual(copy);
      expect([min, p25, median, p75, max].every((value, index, all) => index === 0 || value >= (all[index - 1] as number))).toBe(true);
      expect(std).toBeGreaterThanOrEqual(0);
    },
  );
});

describe("groups", () => {
  it("have statistics over everything in them", () => {
    const failed = { type: "Error", message: "no", traceback: "" };
    const groups = trajectoryGroups([
      group(sampled(0, "ab"), sampled(1, "abcd")),
      new TrajectoryGroup({ trajectories: [sampled(1, "a")], exceptions: [failed] }),
    ]);
    expect(groups.stats).toMatchObject({
      groups: 2,
      trajectories: 3,
      exceptions: 1,
      exceptionRate: 0.25,
      trainableGroups: 1,
      rewardStdWithinGroups: 0.5,
      reward: { count: 3, min: 0, max: 1 },
      tokens: { completion: 7, prompt: 6 },
    });
    expect(groups.stats.reward.mean).toBeCloseTo(2 / 3, 12);
    expect(Object.keys(groups)).toEqual(["0", "1"]);
  });

  it("are frozen with what is in them, and not with what they were made of", () => {
    const failed = { type: "E", message: "m", traceback: "t" };
    const metadata = { a: 1 };
    const made = new TrajectoryGroup({ trajectories: [sampled(1)], exceptions: [failed], metadata });
    failed.message = "changed";
    metadata.a = 2;
    expect(made).toMatchObject({ exceptions: [{ message: "m" }], metadata: { a: 1 } });
    expect(() => (made.exceptions[0]!.message = "x")).toThrow(TypeError);
    expect(() => (made.trajectories as unknown[]).push(1)).toThrow(TypeError);
    expect(made.with({ trajectories: [] })).toMatchObject({ trajectories: [], exceptions: made.exceptions, metadata: { a: 1 } });
    expect(made.trajectories).toHaveLength(1);
  });

  it("round-trip through JSON", () => {
    const original = new TrajectoryGroup({
      trajectories: [sampled(1)],
      exceptions: [{ type: "E", message: "m", traceback: "t" }],
      metadata: { a: 1 },
      metrics: { b: true },
      logs: ["c"],
    });
    const json = JSON.stringify(original);
    expect(JSON.stringify(TrajectoryGroup.fromJSON(JSON.parse(json)))).toBe(json);
    const foreign = { ...(JSON.parse(json) as object), their_key: { a: [1] } };
    expect(JSON.parse(JSON.stringify(TrajectoryGroup.fromJSON(foreign).with({ logs: ["d"] })))).toEqual({ ...foreign, logs: ["d"] });
    expect(() => TrajectoryGroup.fromJSON({ trajectories: [{ reward: "high" }] })).toThrow(/trajectories\.0\.reward/);
  });
});
