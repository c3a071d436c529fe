import { describe, expect, it } from "vitest";
import {
  assertTrainable,
  preflight,
  PreflightError,
  Trajectory,
  trajectory,
  type PreflightOptions,
  type TrajectoryGroup,
} from "../../src/base/trajectory/index.ts";
import { preflightSteps } from "../../src/base/trajectory/preflight.ts";
import { type FindingCode, MESSAGES, severityOf } from "../../src/base/trajectory/findings.ts";
import { read } from "../project/files.ts";
import { group, sampled, scriptedPolicy } from "./samples.ts";

const check = (...groups: readonly TrajectoryGroup[]) => preflight(groups);
const codes = (...groups: readonly TrajectoryGroup[]) => check(...groups).map(({ code, severity }) => `${severity} ${code}`);
const good = () => group(sampled(0), sampled(1));
const said = (reward: number) => trajectory({ messages: [{ role: "assistant", content: "a" }] }).finish({ reward });
const bare = (reward: number) => sampled(reward, `b${reward}`, { logprobs: null });

/** Returns a trajectory of three turns; each prompt begins with the turn before or with other tokens. */
function threeTurns(reward: number, isJoined: boolean): Trajectory {
  const wire = sampled(reward, `t${reward}`).toJSON();
  const choice = wire.messages_and_choices.find((item) => "finish_reason" in item)!;
  const ids = choice.token_ids as number[];
  const prompts = [[7], isJoined ? [7, ...ids, 8] : [9], isJoined ? [7, ...ids, 8, ...ids, 8] : [10]];
  return Trajectory.fromJSON({ ...wire, messages_and_choices: prompts.map((prompt_token_ids) => ({ ...choice, prompt_token_ids })) });
}

describe("preflight", () => {
  it("has no findings for a valid batch", () => {
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
    ["three turns that continue each other", [group(threeTurns(0, true), threeTurns(1, true))], []],
    ["three turns that do not", [group(threeTurns(0, false), threeTurns(1, false))], ["warning separate-turns"]],
    [
      "variables that the template does not read",
      [group(sampled(0, "a", { unused_template_kwargs: ["x"] }), sampled(1, "b", { unused_template_kwargs: [] }))],
      ["warning unused-template-kwargs"],
    ],
    ["another temperature", [group(sampled(0, "a", { temperature: 0.7 }), sampled(1))], ["warning temperature"]],
    ["greedy sampling", [group(sampled(0, "a", { temperature: 0 }), sampled(1))], ["warning temperature"]],
    ["temperature 1", [group(sampled(0, "a", { temperature: 1, top_p: 1, top_k: -1 }), sampled(1))], []],
    ["top-p", [group(sampled(0, "a", { top_p: 0.9 }), sampled(1))], ["warning truncated-sampling"]],
    ["top-k", [group(sampled(0, "a", { top_k: 20 }), sampled(1))], ["warning truncated-sampling"]],
    ["min-p", [group(sampled(0, "a", { min_p: 0.05 }), sampled(1))], ["warning truncated-sampling"]],
    ["a penalty", [group(sampled(0, "a", { presence_penalty: 0.5 }), sampled(1))], ["warning biased-sampling"]],
    ["a logit bias", [group(sampled(0, "a", { logit_bias: true }), sampled(1))], ["warning biased-sampling"]],
    ["a response format", [group(sampled(0, "a", { response_format: true }), sampled(1))], ["warning grammar-mask"]],
    ["a forced tool", [group(sampled(0, "a", { tool_choice: true }), sampled(1))], ["warning grammar-mask"]],
    [
      "many settings at once",
      [group(sampled(0, "a", { temperature: 2, top_p: 0.5, top_k: 3, bad_words: true, structured_outputs: true }), sampled(1))],
      ["warning temperature", "warning truncated-sampling", "warning biased-sampling", "warning grammar-mask"],
    ],
    ["groups of different sizes", [good(), good(), group(sampled(0), sampled(1), sampled(2))], ["warning unbalanced-group"]],
  ] as const)("%s", (_, groups, expected) => {
    expect(codes(...groups)).toEqual(expected);
  });

  it("counts all locations and lists the first five", () => {
    const findings = check(good(), group(...Array.from({ length: 8 }, (_, index) => bare(index))));
    expect(findings.find(({ code }) => code === "choice-without-logprobs")).toMatchObject({
      count: 8,
      examples: expect.arrayContaining(["trajectory_groups.1.trajectories.0.messages_and_choices.1"]) as string[],
    });
    expect(findings.find(({ code }) => code === "choice-without-logprobs")?.examples).toHaveLength(5);
  });

  it("throws with all findings if one is fatal, else returns the warnings", () => {
    expect(assertTrainable([good(), group()].map((each) => each.toJSON()))).toHaveLength(1);
    const batch = [group(bare(0), bare(0)).toJSON()];
    const attempt = () => assertTrainable(batch);
    expect(attempt).toThrow(PreflightError);
    expect(attempt).toThrow(/log-probabilities.*trajectory_groups\.0/);
    const findings = preflight(batch);
    expect(findings.length).toBeGreaterThan(2);
    expect(attempt).toThrow(expect.objectContaining({ code: "E_PREFLIGHT", param: "trajectory_groups", findings }) as Error);
    expect(JSON.parse(JSON.stringify(new PreflightError(findings)))).toMatchObject({ code: "E_PREFLIGHT", findings });
  });

  describe("with options", () => {
    const found = (options: PreflightOptions, ...groups: readonly TrajectoryGroup[]) =>
      preflight(groups, options).map(({ code, severity, examples }) => [`${severity} ${code}`, ...examples]);
    const place = (index: number, rest: string) => `trajectory_groups.0.trajectories.${index}.${rest}`;
    /** Turns of a conversation as (prompt, sampled) tokens. */
    const turns = (reward: number, ...tokens: readonly (readonly [readonly number[], readonly number[]])[]) => {
      const [item] = sampled(reward).choices;
      const choices = tokens.map(([prompt, ids]) => ({
        ...item,
        prompt_token_ids: prompt,
        token_ids: ids,
        logprobs: { content: ids.map((id) => ({ token: String(id), logprob: -1 })) },
      }));
      return Trajectory.fromJSON({ messages_and_choices: choices, reward });
    };

    it("counts an overlong row of several turns once", () => {
      const merged = turns(0, [[1, 2], [3]], [[1, 2, 3, 4], [5]], [[1, 2, 3, 4, 5, 6], [7]]);
      const drifted = turns(
        1,
        [
          [1, 2, 3],
          [4, 5],
        ],
        [[9, 9, 9, 9], [8]],
        [[1, 2], [3]],
      );
      const separate = ["warning separate-turns", "trajectory_groups.0.trajectories.1"];
      expect(found({ maxTokens: 4 }, group(merged, drifted))).toEqual([
        separate,
        [
          "warning overlong-row",
          place(0, "messages_and_choices.1"),
          place(1, "messages_and_choices.0"),
          place(1, "messages_and_choices.1"),
        ],
      ]);
      expect(found({ maxTokens: 7 }, group(merged, drifted))).toEqual([separate]);
    });

    it("rejects a batch in which only constant groups fit the context", () => {
      const long = group(turns(0, [[1, 2, 3], [4]]), turns(1, [[1, 2, 3], [5]]));
      const same = group(turns(1, [[1], [2]]), turns(1, [[1], [3]]));
      expect(found({ maxTokens: 3 }, long, same).map(([code]) => code)).toEqual([
        "fatal only-overlong-rows",
        "warning constant-group",
        "warning overlong-row",
      ]);
      expect(found({ maxTokens: 4 }, long, same).map(([code]) => code)).toEqual(["warning constant-group"]);
    });

    it("computes a group's age from its oldest choice", () => {
      const old = group(sampled(0, "a", { policy_version: 1 }), sampled(1));
      expect(found({ currentStep: 3 }, good(), old)).toEqual([["warning stale-group", "trajectory_groups.1"]]);
      expect(found({ currentStep: 3, maxStepsOffPolicy: 1 }, good(), old)).toEqual([["warning stale-group", "trajectory_groups.1"]]);
      expect(found({ currentStep: 3, maxStepsOffPolicy: 2 }, good(), old)).toEqual([]);
      expect(
        found({ currentStep: 9 }, group(sampled(0, "a", { policy_version: null }), sampled(1, "b", { policy_version: null }))),
      ).toEqual([]);
    });

    it("measures the serialized groups to the byte", () => {
      const groups = [good(), group(sampled(0, "ü"), sampled(1), sampled(2)), good()];
      const bytes = Buffer.byteLength(JSON.stringify(groups));
      const tooLarge = (maxBytes: number) => found({ maxBytes }, ...groups).filter(([code]) => code === "fatal payload-too-large");
      expect(tooLarge(bytes)).toEqual([]);
      expect(tooLarge(bytes - 1)).toEqual([["fatal payload-too-large", "trajectory_groups.2"]]);
      expect(tooLarge(1)).toEqual([["fatal payload-too-large", "trajectory_groups.0"]]);
      expect(() => assertTrainable(groups, { maxBytes: 1 })).toThrow(/`maxBytes`/);
    });

    it.each([
      ["maxTokens", { maxTokens: 0 }],
      ["currentStep", { currentStep: -1 }],
      ["currentStep", { maxStepsOffPolicy: 1 }],
      ["maxStepsOffPolicy", { currentStep: 1, maxStepsOffPolicy: 0.5 }],
      ["maxBytes", { maxBytes: Number.NaN }],
    ])("rejects an invalid `%s`", (param, options) => {
      expect(() => preflight([], options)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
    });
  });

  it("checks additional histories", async () => {
    const play = async (reward: number, branchText: string, temperature = 1) => {
      const t = trajectory({ messages: [{ role: "user", content: "q" }] });
      await t.sample(scriptedPolicy("same"));
      await t.history({ messages: [{ role: "user", content: "q" }] }).sample(scriptedPolicy(branchText), { temperature });
      return t.finish({ reward });
    };
    const place = "trajectory_groups.0.trajectories.1.additional_histories.0.messages_and_choices.1";
    expect(check(group(await play(0, "a"), await play(1, "b", 0.5)))).toMatchObject([{ code: "temperature", examples: [place] }]);
    expect(codes(group(await play(0, "a"), await play(1, "a")))).toEqual(["warning duplicate-trajectory"]);
  });

  it("has the same findings for the wire form, and yields after each trajectory", () => {
    const groups = [good(), group(sampled(0, "a", { top_k: 1 }), sampled(1)), group()];
    const wire = groups.map((each) => each.toJSON());
    expect(preflight(JSON.parse(JSON.stringify(wire)) as typeof wire)).toEqual(preflight(groups));
    expect([...preflightSteps(wire)]).toHaveLength(4);
  });
});

describe("relaxations of a job", () => {
  const noIds = group(sampled(0, "a", { token_ids: null }), sampled(1));
  const noLogprobs = group(bare(0), sampled(1));
  const found = (batch: TrajectoryGroup, options: PreflightOptions) =>
    preflight([batch], options).map(({ code, severity }) => [code, severity]);

  it("report choices without token ids as a warning if they are rendered", () => {
    expect(found(noIds, { rendersTokenIds: true })).toEqual([["rendered-choice", "warning"]]);
    expect(found(noIds, { rendersTokenIds: false, allowsUnknownLogprobs: true })).toEqual([["choice-without-token-ids", "fatal"]]);
  });

  it("report a batch with truncated trajectories alone if the job masks them", () => {
    const cut = group(sampled(0, "a", { finish_reason: "length" }), sampled(1, "b", { finish_reason: "length" }));
    expect(found(cut, {})).toEqual([]);
    expect(found(cut, { masksTruncated: true })).toEqual([["only-truncated", "fatal"]]);
    const half = group(sampled(0, "a", { finish_reason: "length" }), sampled(1, "b"));
    expect(found(half, { masksTruncated: true })).toEqual([]);
  });

  it("report no choices without log-probabilities if they are allowed", () => {
    expect(found(noLogprobs, { allowsUnknownLogprobs: true })).toEqual([]);
    expect(found(noLogprobs, { rendersTokenIds: true })).toEqual([["choice-without-logprobs", "fatal"]]);
  });
});

it("every preflight code is in the reference, with its severity and in the order of the report", () => {
  const section = read("docs/reference/metrics.md").split("\n## Preflight\n")[1] ?? "";
  const documented = [...section.matchAll(/^\| `([\w-]+)` \| (fatal|warning) \|/gmu)].map(([, code, severity]) => [code, severity]);
  expect(documented).toEqual(Object.keys(MESSAGES).map((code) => [code, severityOf(code as FindingCode)]));
});
