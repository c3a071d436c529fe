import { describe, expect, it } from "vitest";
import { HttpError } from "../../src/library/client/index.ts";
import { judgeEndpoint } from "../../src/library/judge/index.ts";
import { graderReward } from "../../src/graders/index.ts";
import { defineEnvironment, evaluate, rescore, validate } from "../../src/library/environment/index.ts";
import { trajectory } from "../../src/base/trajectory/index.ts";
import type { ChatCompletion, Grader } from "../../src/base/schema/index.ts";
import { createScriptedPolicy, type ScriptedTurn } from "../../src/testing/index.ts";
import { completionOf, judgeServer } from "../judge/support.ts";

interface Question {
  readonly id: string;
  readonly question: string;
  readonly name: string;
}

const QUESTION: Question = { id: "one", question: "Who?", name: "Ada" };
const GRADER: Grader = {
  type: "multi",
  name: "contact",
  graders: {
    name: { type: "string_check", name: "name", operation: "eq", input: "{{ sample.output_json.name }}", reference: "{{ item.name }}" },
    short: { type: "string_check", name: "short", operation: "ne", input: "{{ sample.output_text }}", reference: "" },
  },
  calculate_output: "0.8 * name + 0.2 * short",
};
const SCORE: Grader = {
  type: "score_model",
  name: "quality",
  model: "judge",
  input: [{ role: "user", content: "{{ item.question }} {{ sample.output_text }}" }],
};

/** Returns an environment with one scenario and one reward. */
function environmentOf(reward: ReturnType<typeof graderReward<Question>>) {
  return defineEnvironment<Question>({
    name: "contacts",
    scenarios: { train: [QUESTION], eval: [QUESTION] },
    async rollout({ question }, { policy, sampling }) {
      const t = trajectory({ messages: [{ role: "user", content: question }] });
      await t.sample(policy, sampling);
      return t;
    },
    rewards: [reward],
    gold: ({ name }) => JSON.stringify({ name }),
  });
}

/** Returns the trajectory or the exception of one rollout with this answer. */
async function scored(reward: ReturnType<typeof graderReward<Question>>, turn: ScriptedTurn) {
  const { groups } = await evaluate(
    environmentOf(reward),
    createScriptedPolicy(() => turn),
    { progress: false, maxExceptions: 1 },
  );
  return { scored: groups[0]?.trajectories[0], exception: groups[0]?.exceptions[0] };
}

const modelAnswer = (content: string): ChatCompletion => completionOf(content);

describe("graderReward", () => {
  it("scores the last assistant message, with a metric for each part", async () => {
    const { scored: result } = await scored(graderReward<Question>(GRADER), { text: '{"name": "Ada"}' });
    expect(result?.reward).toBe(1);
    expect(result?.metrics).toMatchObject({ "reward/contact": 1, "reward/contact/name": 1, "reward/contact/short": 1 });
    expect(result?.logs).toEqual([]);
  });

  it("scores a part with 0 that the sample does not allow to compute, and logs the reason", async () => {
    const { scored: result } = await scored(graderReward<Question>(GRADER), { text: "Ada" });
    expect(result?.reward).toBe(0.2);
    expect(result?.metrics).toMatchObject({ "reward/contact/name": 0, "reward/contact/short": 1 });
    expect(result?.logs).toEqual(["Grader `name`: `{{ sample.output_json.name }}`: the text of the sample is not JSON"]);
  });

  it("reads tool calls of the last assistant message", async () => {
    const grader: Grader = {
      type: "string_check",
      name: "called",
      operation: "eq",
      input: "{{ sample.output_tools[0].function.name }}",
      reference: "lookup",
    };
    const { scored: result } = await scored(graderReward<Question>(grader), { calls: [["lookup", "{}"]] });
    expect(result?.reward).toBe(1);
    expect((await scored(graderReward<Question>(grader), { text: "lookup" })).scored?.reward).toBe(0);
  });

  it("reads the finish reason of the sampled turn", async () => {
    const input = "{{ sample.choices[0].finish_reason }}";
    const grader: Grader = { type: "string_check", name: "cut", operation: "eq", input, reference: "length" };
    expect((await scored(graderReward<Question>(grader), { text: "Ad", isTruncated: true })).scored?.reward).toBe(1);
    expect((await scored(graderReward<Question>(grader), { text: "Ada" })).scored?.reward).toBe(0);
  });

  it("grades an assistant message that the rollout added itself", async () => {
    const grader: Grader = {
      type: "string_check",
      name: "g",
      operation: "eq",
      input: "{{ sample.choices[0].message.content }}",
      reference: "final",
    };
    const environment = defineEnvironment<Question>({
      ...environmentOf(graderReward<Question>(grader)),
      async rollout({ question }, { policy, sampling }) {
        const t = trajectory({ messages: [{ role: "user", content: question }] });
        await t.sample(policy, sampling);
        t.add({ role: "assistant", content: "final" });
        return t;
      },
    });
    const { groups } = await evaluate(
      environment,
      createScriptedPolicy(() => ({ text: "draft" })),
      { progress: false },
    );
    expect(groups[0]?.trajectories[0]?.reward).toBe(1);
  });

  it("takes another name, and the item of a function", async () => {
    const grader: Grader = {
      type: "string_check",
      name: "g",
      operation: "eq",
      input: "{{ sample.output_text }}",
      reference: "{{ item.x }}",
    };
    const reward = graderReward<Question>(grader, { name: "exact", item: ({ name }) => ({ x: name }) });
    const { scored: result } = await scored(reward, { text: "Ada" });
    expect(result?.metrics).toMatchObject({ "reward/exact": 1 });
  });

  it("fails the rollout for a field that the item lacks", async () => {
    const grader: Grader = { type: "string_check", name: "g", operation: "eq", input: "", reference: "{{ item.answer }}" };
    const { exception } = await scored(graderReward<Question>(grader), { text: "Ada" });
    expect(exception?.message).toContain("GraderError: Grader `g`: `{{ item.answer }}`: `item` has no field `answer`; it has `id`");
  });

  it("asks a judge endpoint, and records its tokens", async () => {
    const server = await judgeServer(() => ({ body: modelAnswer('{"steps": [], "result": 0.5}') }));
    await using judge = judgeEndpoint({ baseUrl: server.baseUrl, model: "large" });
    const reward = graderReward<Question>(SCORE, { complete: (request, options) => judge.complete(request, options) });
    const { scored: result } = await scored(reward, { text: "Ada" });
    expect(result?.reward).toBe(0.5);
    expect(result?.metrics).toMatchObject({ "reward/quality": 0.5, "grader/prompt_tokens": 100, "grader/completion_tokens": 10 });
    expect(server.requests[0]?.body).toMatchObject({ model: "large", messages: [{ role: "user", content: "Who? Ada" }] });
  });

  it("fails the rollout instead of inventing a reward if the model gives no valid answer", async () => {
    const reward = graderReward<Question>(SCORE, { complete: async () => modelAnswer("good") });
    const { scored: result, exception } = await scored(reward, { text: "Ada" });
    expect(result).toBeUndefined();
    expect(exception?.message).toMatch(/Reward `quality` .* failed with GraderError: Grader `quality`: Expected `\{"steps"/u);
  });

  it("keeps whether a failed request is worth a retry", async () => {
    for (const retryable of [true, false]) {
      const error = new HttpError("failed", { status: 503, retryable });
      const reward = graderReward<Question>(SCORE, { complete: () => Promise.reject(error) });
      const input = {
        scenario: QUESTION,
        text: "",
        trajectory: trajectory({ messages: [] }).finish({ reward: 0 }),
        signal: new AbortController().signal,
      };
      await expect(reward.score(input)).rejects.toMatchObject({
        code: "E_GRADER",
        flag: "model_grader_server_error",
        retryable,
        cause: error,
      });
    }
  });

  it("scores the right answer of an environment in `validate`, and stored trajectories in `rescore`", async () => {
    const environment = environmentOf(graderReward<Question>(GRADER));
    const { findings } = await validate(environment);
    expect(findings.filter(({ severity }) => severity === "fatal")).toEqual([]);
    const { groups } = await evaluate(
      environment,
      createScriptedPolicy(() => ({ text: "no" })),
      { progress: false },
    );
    const [group] = await rescore(environment, groups);
    expect(group?.trajectories[0]?.reward).toBe(0.2);
  });

  it.each<[string, () => unknown, string, string]>([
    ["a python grader", () => graderReward({ type: "python", name: "p", source: "" } as unknown as Grader), "E_UNSUPPORTED", "type"],
    ["a formula that does not parse", () => graderReward({ ...GRADER, calculate_output: "(" } as Grader), "E_ARGUMENT", "calculate_output"],
    ["a model grader without `complete`", () => graderReward(SCORE), "E_ARGUMENT", "complete"],
    ["an item that is not a function", () => graderReward(GRADER, { item: {} as never }), "E_CONFIG", "item"],
    ["an empty name", () => graderReward(GRADER, { name: " " }), "E_CONFIG", "name"],
  ])("rejects %s when it is created", (_, create, code, param) => {
    expect(create).toThrow(expect.objectContaining({ code, param }));
  });
});
