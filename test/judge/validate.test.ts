import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { relativeJudge, validateJudge, type JudgeCase } from "../../src/library/judge/index.ts";
import type { GroupReward } from "../../src/base/trajectory/group-scoring.ts";
import { candidatesIn, fairJudge, hundredth, judgeOf, rightEntries, rollout, scoresText } from "./support.ts";

const CASES: readonly JudgeCase<null>[] = [
  { scenario: null, trajectories: ["90", "50", "10"].map((text) => rollout(text)) },
  { scenario: null, trajectories: ["20", "80"].map((text) => rollout(text)), quality: [1, 2] },
];

/** Group reward without a model: `score` gets text and position. */
function rewardOf(score: (text: string, position: number, seed: number) => number): GroupReward<null> {
  return {
    name: "own",
    weight: 1,
    scoreGroup: ({ trajectories, seed }) => trajectories.map((each, position) => score(each.lastText, position, seed)),
  };
}

describe("validateJudge", () => {
  it("finds nothing wrong with a judge that scores by content", async () => {
    expect(await validateJudge(relativeJudge({ model: fairJudge() }), CASES)).toEqual({
      isValid: true,
      calls: { total: 10, failed: 0 },
      pairwiseAccuracy: 1,
      kendallTau: 1,
      orderChange: { mean: 0, max: 0 },
      noise: { mean: 0, max: 0 },
      findings: [],
    });
  });

  it("reports a judge that scores in the opposite order", async () => {
    const result = await validateJudge(
      relativeJudge({ model: judgeOf((request) => scoresText(rightEntries(request, (text) => 1 - hundredth(text)))) }),
      CASES,
    );
    expect(result).toMatchObject({ isValid: false, pairwiseAccuracy: 0, kendallTau: -1 });
    expect(result.findings).toMatchObject([{ code: "no-agreement", severity: "fatal" }]);
  });

  it("reports a model that prefers the first candidate it reads, which one order alone would hide", async () => {
    const first = judgeOf((request) =>
      scoresText(candidatesIn(request).map(({ id }, position) => ({ id, score: position === 0 ? 1 : 0 }))),
    );
    const result = await validateJudge(relativeJudge({ model: first }), CASES, { orders: 16 });
    expect(result.orderChange).toEqual({ mean: 1, max: 1 });
    expect(result.noise).toEqual({ mean: 0, max: 0 });
    expect(result.findings).toContainEqual(expect.objectContaining({ code: "order-changes-scores", severity: "warning" }));
  });

  it("reports a group reward that depends on the position of a rollout in its input", async () => {
    const result = await validateJudge(
      rewardOf((text, position) => hundredth(text) + position / 10),
      CASES,
    );
    expect(result.orderChange.mean).toBeGreaterThan(0.05);
    expect(result.findings.map(({ code }) => code)).toEqual(["order-changes-scores"]);
  });

  it("does not mistake noise for a dependence on the order", async () => {
    let calls = 0;
    const result = await validateJudge(
      rewardOf((text) => hundredth(text) + (calls++ % 7) / 100),
      CASES,
    );
    expect(result.noise.mean).toBeGreaterThan(0);
    expect(result.findings).toEqual([]);
  });

  it("reports failed calls and measures the others", async () => {
    const failing = rewardOf((text, position, seed) => {
      if (seed === 1) throw new Error("no capacity");
      return seed === 2 && position === 0 ? Number.NaN : hundredth(text);
    });
    const result = await validateJudge(failing, CASES.slice(0, 1), { orders: 5 });
    expect(result).toMatchObject({ isValid: false, calls: { total: 6, failed: 2 }, pairwiseAccuracy: 1 });
    expect(result.findings).toMatchObject([{ code: "judge-failed", message: expect.stringContaining("no capacity") }]);
  });

  it("counts equal scores as half, and leaves pairs of equal quality out", async () => {
    const equal = await validateJudge(
      rewardOf(() => 0.5),
      CASES,
    );
    expect(equal).toMatchObject({ pairwiseAccuracy: 0.5, kendallTau: 0 });
    const trajectories = ["90", "50", "10"].map((text) => rollout(text));
    const partial = await validateJudge(
      rewardOf((text) => (text === "90" ? 0 : 1)),
      [{ scenario: null, trajectories, quality: [1, 0, 0] }],
    );
    expect(partial).toMatchObject({ pairwiseAccuracy: 0, kendallTau: -1 });
    const none = await validateJudge(rewardOf(hundredth), [{ scenario: null, trajectories, quality: [1, 1, 1] }]);
    expect(none).toMatchObject({ pairwiseAccuracy: Number.NaN, kendallTau: 0, isValid: true });
  });

  it("warns below `minAccuracy`", async () => {
    const trajectories = ["1", "2", "3"].map((text) => rollout(text));
    const reward = rewardOf((text) => ({ "1": 0.9, "2": 0.1, "3": 0.5 })[text]!);
    const result = await validateJudge(reward, [{ scenario: null, trajectories }], { minAccuracy: 0.9 });
    expect(result.pairwiseAccuracy).toBeCloseTo(2 / 3);
    expect(result.kendallTau).toBeCloseTo(1 / 3);
    expect(result.findings).toMatchObject([{ code: "low-agreement", severity: "warning" }]);
    expect(result.isValid).toBe(true);
  });

  const scores = fc.array(fc.integer({ min: 0, max: 5 }), { minLength: 2, maxLength: 6 });
  test.prop([scores, fc.infiniteStream(fc.integer({ min: 0, max: 3 }))], { numRuns: 200 })(
    "computes τ-b as the correlation of the signs of all pairs",
    async (given, stream) => {
      const quality = given.map(() => stream.next().value as number);
      const trajectories = given.map((_, index) => rollout(String(index)));
      const { kendallTau } = await validateJudge(
        rewardOf((text) => given[Number(text)]!),
        [{ scenario: null, trajectories, quality }],
      );
      const signs = (values: readonly number[]) => values.flatMap((a) => values.map((b) => Math.sign(a - b)));
      const [x, y] = [signs(quality), signs(given)];
      const dot = (a: readonly number[], b: readonly number[]) => a.reduce((sum, value, index) => sum + value * b[index]!, 0);
      const norm = Math.sqrt(dot(x, x) * dot(y, y));
      expect(kendallTau).toBeCloseTo(norm === 0 ? 0 : dot(x, y) / norm, 10);
    },
  );

  it.each<[string, object]>([
    ["orders", { orders: 1 }],
    ["seed", { seed: -1 }],
    ["minAccuracy", { minAccuracy: 2 }],
    ["orderTolerance", { orderTolerance: Number.NaN }],
  ])("rejects an invalid `%s`", async (param, options) => {
    await expect(validateJudge(rewardOf(hundredth), CASES, options)).rejects.toMatchObject({ code: "E_ARGUMENT", param });
  });

  it.each<[string, readonly JudgeCase<null>[]]>([
    ["no cases", []],
    ["a case with one rollout", [{ scenario: null, trajectories: [rollout("1")] }]],
    ["a quality that is missing", [{ scenario: null, trajectories: [rollout("1"), rollout("2")], quality: [1] }]],
  ])("rejects %s", async (_, cases) => {
    await expect(validateJudge(rewardOf(hundredth), cases)).rejects.toMatchObject({ code: "E_ARGUMENT", param: "cases" });
  });

  it("rejects with the signal's reason", async () => {
    const controller = new AbortController();
    const reward = rewardOf(() => {
      controller.abort(new Error("enough"));
      throw new Error("failed");
    });
    await expect(validateJudge(reward, CASES, { signal: controller.signal })).rejects.toThrow("enough");
  });
});
