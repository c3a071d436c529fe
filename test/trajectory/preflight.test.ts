import { describe, expect, it } from "vitest";
import { assertTrainable, preflight, PreflightError, trajectory, type TrajectoryGroup } from "../../src/trajectory/index.ts";
import { group, sampled } from "./samples.ts";

const check = (...groups: readonly TrajectoryGroup[]) => preflight(groups.map((each) => each.toJSON()));
const codes = (...groups: readonly TrajectoryGroup[]) => check(...groups).map(({ code, severity }) => `${severity} ${code}`);
const good = () => group(sampled(0), sampled(1));
const said = (reward: number) => trajectory({ messages: [{ role: "assistant", content: "a" }] }).finish({ reward });
const bare = (reward: number) => sampled(reward, `b${reward}`, { logprobs: null });

describe("preflight", () => {
  it("finds nothing in a good batch", () => {
    expect(check(good(), good())).toEqual([]);
  });

  it.each([
    ["no group", [], ["fatal no-groups"]],
    ["only empty groups", [group()], ["fatal no-groups", "warning empty-group"]],
    ["an empty group among others", [good(), group()], ["warning empty-group"]],
    ["a group of one", [good(), group(sampled(1))], ["warning group-of-one"]],
    ["only groups of one", [group(sampled(1))], ["fatal nothing-to-learn", "warning group-of-one"]],
    ["one constant group", [good(), group(sampled(1, "a"), sampled(1, "b"))], ["warning constant-group"]],
    ["all groups constant", [group(sampled(1, "a"), sampled(1, "b"))], ["fatal nothing-to-learn", "warning constant-group"]],
    ["a group without logprobs", [good(), group(bare(0), bare(1))], ["fatal choice-without-logprobs"]],
    ["one choice without logprobs", [group(bare(0), sampled(1), sampled(2))], ["fatal choice-without-logprobs"]],
    ["empty logprobs", [group(sampled(0, "a", { logprobs: { content: [] } }), sampled(1))], ["fatal choice-without-logprobs"]],
    ["one choice without token ids", [group(sampled(0, "a", { token_ids: null }), sampled(1))], ["fatal choice-without-token-ids"]],
    ["one choice without prompt ids", [group(sampled(0, "a", { prompt_token_ids: null }), sampled(1))], ["fatal choice-without-token-ids"]],
    ["an empty prompt", [group(sampled(0, "a", { prompt_token_ids: [] }), sampled(1))], ["fatal empty-choice"]],
    ["a group of messages only", [good(), group(said(0), said(1))], ["fatal no-logprobs"]],
    ["one trajectory of messages only", [group(said(0), sampled(1), sampled(2))], []],
    ["token ids that do not match", [group(sampled(0, "ab", { token_ids: [1] }), sampled(1))], ["fatal token-count-mismatch"]],
    ["a reward that is not finite", [group(sampled(Number.NaN), sampled(1))], ["fatal non-finite-reward"]],
    [
      "a positive log-probability",
      [group(sampled(0, "a", { logprobs: { content: [{ token: "a", logprob: 0.5 }] } }), sampled(1))],
      ["fatal non-finite-logprob"],
    ],
    ["the same tokens twice", [group(sampled(0, "a"), sampled(0, "a"), sampled(1))], ["warning duplicate-trajectory"]],
    ["another temperature", [group(sampled(0, "a", { temperature: 0.7 }), sampled(1))], ["warning temperature"]],
  ] as const)("%s", (_, groups, expected) => {
    expect(codes(...groups)).toEqual(expected);
  });

  it("counts all places and names the first few", () => {
    const findings = check(good(), group(...Array.from({ length: 8 }, (_, index) => bare(index))));
    expect(findings.find(({ code }) => code === "choice-without-logprobs")).toMatchObject({
      count: 8,
      examples: expect.arrayContaining(["trajectory_groups.1.trajectories.0.messages_and_choices.1"]) as string[],
    });
    expect(findings.find(({ code }) => code === "choice-without-logprobs")?.examples).toHaveLength(5);
  });

  it("throws with all findings when one is fatal, and gives the warnings when none is", () => {
    expect(assertTrainable([good(), group()].map((each) => each.toJSON()))).toHaveLength(1);
    const attempt = () => assertTrainable([group(bare(0), bare(0)).toJSON()]);
    expect(attempt).toThrow(PreflightError);
    expect(attempt).toThrow(/log-probabilities.*trajectory_groups\.0/);
    try {
      attempt();
    } catch (error) {
      expect(JSON.parse(JSON.stringify(error))).toMatchObject({
        code: "E_PREFLIGHT",
        param: "trajectory_groups",
        findings: expect.any(Array) as unknown[],
      });
    }
  });
});
