import { describe, expect, it } from "vitest";
import { validate } from "../../src/library/environment/index.ts";
import { ArgumentError, ConfigError } from "../../src/base/errors.ts";
import { sums } from "./sums.ts";

const codes = async (...args: Parameters<typeof validate<never>>) => (await validate(...args)).findings.map(({ code }) => code);
const checked = (change: Parameters<typeof sums>[0], options = {}) => codes(sums(change) as never, { expected: 1, ...options });

describe("validate", () => {
  it("has no findings if right answers earn the most and empty ones less", async () => {
    const report = await validate(sums({ rewards: sums().rewards.slice(0, 2) }));
    expect(report).toMatchObject({ environment: "sums", isValid: true, expected: 1.5, findings: [] });
    expect(report.scores).toHaveLength(7);
    expect(report.scores[4]).toMatchObject({ split: "eval", reward: 1.5, emptyReward: 0, rewards: { correct: 1, short: 1 } });
  });

  it("expects the highest observed total if raw values are outside [0, 1]", async () => {
    const near = {
      name: "near",
      score: ({ scenario, text }: { scenario: { a: number; b: number }; text: string }) =>
        10 - Math.abs(Number(text) - scenario.a - scenario.b),
    };
    const report = await validate(sums({ rewards: [near] }));
    expect(report).toMatchObject({ isValid: true, expected: 10 });
  });

  it("names the scenarios with a right answer that earns less than expected", async () => {
    const report = await validate(
      sums({
        gold: ({ a, b }) => (a === 3 ? "3" : String(a + b)),
        rewards: sums().rewards.slice(0, 1),
        scenarioId: ({ a, b }) => `${a}+${b}`,
      }),
    );
    expect(report.isValid).toBe(false);
    expect(report.findings.map(({ code, count, examples }) => ({ code, count, examples }))).toEqual([
      { code: "gold-below-expected", count: 2, examples: ["3+5", "3+4"] },
      { code: "no-difference", count: 2, examples: ["3+5", "3+4"] },
    ]);
    expect(report.findings[0]?.message).toContain("earns less than 1.");
  });

  it("reports rewards that are always zero", async () => {
    expect(await codes(sums({ rewards: [{ name: "zero", score: () => 0 }] }) as never)).toEqual([
      "gold-below-expected",
      "no-difference",
      "reward-without-difference",
    ]);
  });

  it("reports a reward that fails, and one that is the same for right and empty answers", async () => {
    const fails = { name: "fails", score: ({ text }: { text: string }) => JSON.parse(text) as number };
    const report = await validate(sums({ rewards: [fails] }), { expected: 0 });
    expect(report.findings).toMatchObject([
      { code: "reward-failed", severity: "fatal", count: 7, message: expect.stringContaining("`fails`") },
    ]);
    expect(report.scores[0]).toMatchObject({ reward: 6, emptyReward: null });
    const penalty = { name: "penalty", weight: -1, score: () => 0 };
    const constant = { name: "constant", weight: 0.5, score: () => 0.5 };
    const found = await validate(sums({ rewards: [...sums().rewards.slice(0, 1), penalty, constant] }), { expected: 1.25 });
    expect(found).toMatchObject({
      isValid: true,
      findings: [{ code: "reward-without-difference", severity: "warning", examples: ["constant"] }],
    });
  });

  it("reports ids of two scenarios, and scenarios in both splits", async () => {
    const rewards = sums().rewards.slice(0, 1);
    expect(await checked({ rewards, scenarioId: ({ a }) => String(a) })).toEqual(["same-id", "in-both-splits"]);
    expect(await checked({ rewards, scenarios: { train: [{ a: 1, b: 2 }], eval: [{ a: 1, b: 2 }] } })).toEqual(["in-both-splits"]);
    expect(
      await checked({
        rewards,
        scenarios: {
          train: [
            { a: 1, b: 2 },
            { a: 1, b: 2 },
          ],
          eval: [],
        },
      }),
    ).toEqual([]);
  });

  it("accepts messages as gold: assistant turns count as sampled, tool results as context", async () => {
    const seen: unknown[] = [];
    const report = await validate(
      sums({
        scenarios: { train: (index) => ({ a: index, b: 1 }), eval: [] },
        gold: ({ a, b }) => [
          { role: "assistant", content: "", tool_calls: [{ id: "c", type: "function", function: { name: "add", arguments: "{}" } }] },
          { role: "tool", content: String(a + b), tool_call_id: "c" },
          { role: "assistant", content: [{ type: "text", text: String(a + b) }] },
        ],
        rewards: [
          {
            name: "correct",
            score: ({ scenario, text, trajectory }) => {
              seen.push([trajectory.messages().map(({ role }) => role), trajectory.choices.length]);
              return text === String(scenario.a + scenario.b);
            },
          },
        ],
      }),
      { count: 2 },
    );
    expect(report).toMatchObject({ isValid: true, findings: [] });
    expect(report.scores).toHaveLength(2);
    expect(seen[0]).toEqual([["assistant", "tool", "assistant"], 2]);
  });

  it("rejects environments and options that it cannot validate", async () => {
    await expect(validate(sums({ gold: undefined }))).rejects.toThrow(ConfigError);
    await expect(validate(sums({ rewards: [] }))).rejects.toThrow(ConfigError);
    await expect(validate(sums(), { count: 0 })).rejects.toThrow(ArgumentError);
    await expect(validate(sums(), { expected: Number.NaN })).rejects.toThrow(ArgumentError);
    await expect(validate(sums(), { signal: AbortSignal.abort(new Error("enough")) })).rejects.toThrow("enough");
  });
});
