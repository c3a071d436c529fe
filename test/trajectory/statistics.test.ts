import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import {
  clusteredMean,
  histogram,
  passAtK,
  summarize,
  TrajectoryGroup,
  trajectory,
  trajectoryGroups,
} from "../../src/base/trajectory/index.ts";
import { studentQuantile } from "../../src/base/trajectory/interval.ts";
import { group, sampled, scriptedPolicy } from "./samples.ts";

const badArgument = (param: string) => expect.objectContaining({ code: "E_ARGUMENT", param }) as Error;
/** A group of one scenario, without tokens. */
const scored = (rewards: readonly number[], scenario?: string, exceptions = 0) =>
  new TrajectoryGroup({
    trajectories: rewards.map((reward) => trajectory({ messages: [] }).finish({ reward })),
    exceptions: Array.from({ length: exceptions }, () => ({ type: "E", message: "m", traceback: "" })),
    metadata: scenario === undefined ? {} : { scenario_id: scenario },
  });

describe("summarize", () => {
  it("computes population deviation and interpolated quantiles", () => {
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

  it("agrees with NumPy", () => {
    // numpy.percentile(x, [0, 25, 50, 75, 100]), numpy.mean(x), numpy.std(x); NumPy 2.4.6.
    const { mean, std, ...rest } = summarize([3.5, -1, 12.25, 0, 7, 7, 2.125]);
    expect(rest).toEqual({ count: 7, min: -1, p25: 1.0625, median: 3.5, p75: 7, max: 12.25 });
    expect(mean).toBeCloseTo(4.410714285714286, 14);
    expect(std).toBeCloseTo(4.303608476426189, 14);
  });

  test.prop([fc.array(fc.double({ min: -1e6, max: 1e6, noNaN: true }), { minLength: 1 })])(
    "has ordered quantiles and does not modify its input",
    (values) => {
      const copy = [...values];
      const { min, p25, median, p75, max, std } = summarize(values);
      expect(values).toEqual(copy);
      expect([min, p25, median, p75, max].every((value, index, all) => index === 0 || value >= (all[index - 1] as number))).toBe(true);
      expect(std).toBeGreaterThanOrEqual(0);
    },
  );
});

describe("studentQuantile", () => {
  // scipy.stats.t.ppf((1 + level) / 2, freedom); SciPy 1.17.1.
  it.each([
    [1, 0.95, 12.706204736174694],
    [2, 0.95, 4.302652729749462],
    [3, 0.95, 3.1824463052837078],
    [4, 0.95, 2.7764451051977934],
    [7, 0.95, 2.364624251592784],
    [8, 0.9, 1.8595480375308973],
    [29, 0.99, 2.756385903670605],
    [200, 0.95, 1.9718962236339088],
    [1001, 0.95, 1.9623367052808798],
    [1, 0.9999, 6366.197671316637],
  ])("for %d degrees of freedom at level %d is %d", (freedom, level, expected) => {
    expect(studentQuantile(freedom, level) / expected).toBeCloseTo(1, 9);
  });
});

describe("clusteredMean", () => {
  it("is the t interval if every cluster has one value", () => {
    // scipy.stats.sem, scipy.stats.t.interval(0.9, 3, loc=mean, scale=sem).
    const { low, high, ...rest } = clusteredMean([[1], [2], [4], [8]], { level: 0.9 });
    expect(rest).toEqual({ mean: 3.75, standardError: expect.closeTo(1.547847968417226, 12), level: 0.9, clusters: 4, count: 4 });
    expect(low).toBeCloseTo(0.107351188494611, 9);
    expect(high).toBeCloseTo(7.392648811505387, 9);
  });

  it("treats values of one cluster as dependent", () => {
    // NumPy after the formula: sqrt(m/(m-1) * sum over clusters of (sum(x - mean))**2) / N, times scipy's t.
    const found = clusteredMean([[0, 1, 1, 1], [], [0, 0, 1], [0.5, 0.25]]);
    expect(found).toMatchObject({ clusters: 3, count: 9, level: 0.95 });
    expect(found.mean).toBeCloseTo(0.5277777777777778, 12);
    expect(found.standardError).toBeCloseTo(0.15054010368218765, 12);
    expect(found.low).toBeCloseTo(-0.11994401026715396, 9);
    expect(found.high).toBeCloseTo(1.1754995658227094, 9);
  });

  it("has no interval for one cluster, and rejects an invalid level", () => {
    expect(clusteredMean([[1, 2]])).toMatchObject({ mean: 1.5, standardError: Number.NaN, low: Number.NaN, high: Number.NaN });
    expect(clusteredMean([])).toMatchObject({ mean: Number.NaN, clusters: 0, count: 0 });
    expect(() => clusteredMean([[1], [2]], { level: 95 })).toThrow(badArgument("level"));
  });
});

describe("passAtK", () => {
  // Python: the share of itertools.combinations(attempts, k) with a pass in them.
  it.each([
    [8, 0, 4, 0],
    [8, 1, 1, 0.125],
    [8, 1, 4, 0.5],
    [8, 3, 4, 0.9285714285714286],
    [8, 5, 4, 1],
    [4, 2, 2, 0.8333333333333334],
    [10, 3, 5, 0.9166666666666666],
    [12, 1, 7, 0.5833333333333334],
    [5, 4, 2, 1],
  ])("of %d attempts, %d passed, k = %d: %d", (n, c, k, expected) => {
    const rewards = Array.from({ length: n }, (_, index) => (index < c ? 1 : 0));
    expect(passAtK([scored(rewards)], { k, threshold: 1 }).mean).toBeCloseTo(expected, 12);
  });

  it("averages over scenarios, which may have several groups", () => {
    // Attempts of "a" are 8 with 1 passed, of "b" 8 with 0, of "c" 8 with 3; numpy.mean and scipy.stats.sem of the three values above.
    const groups = [
      scored([1, 0, 0, 0], "a"),
      scored([0, 0, 0, 0, 0, 0, 0, 0], "b"),
      scored([1, 1, 1, 0, 0, 0, 0, 0], "c"),
      scored([0, 0, 0, 0], "a"),
    ];
    const found = passAtK(groups, { k: 4, isPass: ({ reward }) => reward === 1 });
    expect(found).toMatchObject({ k: 4, clusters: 3, count: 3, skipped: 0, low: 0, high: 1 });
    expect(found.mean).toBeCloseTo(0.4761904761904762, 12);
    expect(found.standardError).toBeCloseTo(0.268319706418682, 12);
  });

  it("reports scenarios with too few attempts, and counts exceptions on request", () => {
    const groups = [scored([1, 0]), scored([1], undefined, 1)];
    expect(passAtK(groups, { k: 2, threshold: 0.5 })).toMatchObject({ mean: 1, clusters: 1, skipped: 1 });
    expect(passAtK(groups, { k: 1, threshold: 0.5 }).mean).toBe(0.75);
    expect(passAtK(groups, { k: 1, threshold: 0.5, countExceptions: true })).toMatchObject({ mean: 0.5, skipped: 0 });
    expect(passAtK([], { k: 1, threshold: 1 })).toMatchObject({ mean: Number.NaN, clusters: 0 });
  });

  it("rejects options without a result", () => {
    const groups = [scored([1, 0])];
    expect(() => passAtK(groups, { k: 3, threshold: 1 })).toThrow(/`k` is 3, the most attempts at one are 2/);
    expect(() => passAtK(groups, { k: 0, threshold: 1 })).toThrow(badArgument("k"));
    expect(() => passAtK(groups, { k: 1.5, threshold: 1 })).toThrow(badArgument("k"));
    expect(() => passAtK(groups, { k: 1 })).toThrow(badArgument("threshold"));
    expect(() => passAtK(groups, { k: 1, threshold: 1, isPass: () => true })).toThrow(badArgument("threshold"));
    expect(() => passAtK(groups, { k: 1, threshold: Number.NaN })).toThrow(badArgument("threshold"));
  });
});

describe("histogram", () => {
  it("counts in powers of two", () => {
    // numpy.histogram(values, [0, 1, 2, 4, 8, 16, 32, 64, 128]).
    expect(histogram([0, 1, 1, 2, 3, 4, 7, 8, 31, 32, 33, 100])).toEqual({
      edges: [0, 1, 2, 4, 8, 16, 32, 64, 128],
      counts: [1, 2, 2, 2, 1, 1, 2, 1],
    });
    expect(histogram([])).toEqual({ edges: [0, 1], counts: [0] });
    for (const value of [-1, Number.NaN, 2 ** 31]) expect(() => histogram([value])).toThrow(badArgument("values"));
  });

  test.prop([fc.array(fc.nat(), { minLength: 1 })])("counts every value between its edges", (values) => {
    const { edges, counts } = histogram(values);
    expect(edges).toHaveLength(counts.length + 1);
    counts.forEach((count, index) => {
      const [from, to] = [edges[index] as number, edges[index + 1] as number];
      expect(count).toBe(values.filter((value) => value >= from && value < to).length);
    });
  });
});

describe("groups", () => {
  it("have statistics over all trajectories and exceptions", () => {
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
    expect(groups.stats).toMatchObject({
      rewardMean: { mean: groups.stats.reward.mean, clusters: 2, count: 3, level: 0.95 },
      turns: { perTrajectory: { mean: 1 }, histogram: { edges: [0, 1, 2], counts: [0, 3] } },
      tokens: {
        completionHistogram: { edges: [0, 1, 2, 4, 8], counts: [0, 1, 1, 1] },
        longestPerTrajectory: { min: 3, max: 6 },
        longestHistogram: { edges: [0, 1, 2, 4, 8], counts: [0, 0, 1, 2] },
      },
    });
    expect(Object.keys(groups)).toEqual(["0", "1"]);
  });

  it("count turns of additional histories, and combine groups of one scenario", async () => {
    const t = trajectory({ messages: [{ role: "user", content: "q" }], metadata: { scenario_id: "a" } });
    await t.sample(scriptedPolicy("abc"));
    await t.history({ messages: [{ role: "user", content: "q" }] }).sample(scriptedPolicy("defgh"));
    const { stats } = trajectoryGroups([group(t.finish({ reward: 1 })), scored([0], "a"), scored([0])]);
    expect(stats).toMatchObject({
      rewardMean: { clusters: 2, count: 3 },
      turns: { perTrajectory: { max: 2 } },
      tokens: { completion: 8, prompt: 4, longestPerTrajectory: { max: 7 } },
    });
  });

  it("keep scenarios of different environments apart", () => {
    const of = (environment: string) => scored([1], "a").with({ metadata: { scenario_id: "a", environment } });
    expect(trajectoryGroups([of("x"), of("y"), of("x")]).stats.rewardMean.clusters).toBe(2);
  });

  it("freeze copies of their contents, not the inputs", () => {
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
