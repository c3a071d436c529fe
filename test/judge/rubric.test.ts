import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { connect } from "../../src/index.ts";
import { defineEnvironment, environmentRollout, rescore, validate } from "../../src/library/environment/index.ts";
import { judgeEndpoint, referenceJudge, relativeJudge, rubricJudge, type RubricJudgeOptions } from "../../src/library/judge/index.ts";
import { gatherTrajectoryGroups } from "../../src/library/rollout/index.ts";
import { createScriptedPolicy, startTestService } from "../../src/testing/index.ts";
import { trajectory } from "../../src/base/trajectory/index.ts";
import type { RewardLike } from "../../src/base/trajectory/scoring.ts";
import { judgeOf, PROMPT, questionOf, scoresText } from "./support.ts";

interface Scenario {
  readonly id: string;
  readonly answer: string;
}

const SCENARIO: Scenario = { id: "a", answer: "forty-two" };
const CRITERIA = [
  { name: "correct", description: "The number is right.", weight: 3 },
  { name: "polite", description: "The tone is polite." },
];

function environmentOf(rewards: readonly RewardLike<Scenario>[]) {
  return defineEnvironment<Scenario>({
    name: "numbers",
    scenarios: { train: [SCENARIO], eval: [] },
    async rollout(_, { policy, sampling }) {
      const t = trajectory({ messages: PROMPT });
      await t.sample(policy, sampling);
      return t;
    },
    rewards,
    gold: ({ answer }) => answer,
  });
}

async function play(rewards: readonly RewardLike<Scenario>[], answers: readonly string[]) {
  const policy = createScriptedPolicy(answers.map((text) => ({ text })));
  const options = { policy, groupSize: answers.length, concurrency: 1, maxExceptions: answers.length };
  const [group] = await gatherTrajectoryGroups([SCENARIO], environmentRollout(environmentOf(rewards)), options);
  return group!;
}

describe("rubricJudge", () => {
  const answer = (correct: number, polite: number) =>
    scoresText([
      { id: "polite", score: polite, explanation: "tone" },
      { id: "correct", score: correct, explanation: "number" },
    ]);

  it("gives the weighted mean of the criteria, and records each, with tokens and explanations", async () => {
    const model = judgeOf(() => answer(0.5, 1), { prices: { inputPerMillion: 10_000, outputPerMillion: 0 } });
    const group = await play([rubricJudge({ model, criteria: CRITERIA, weight: 2 })], ["I think it is 42."]);
    const [only] = group.trajectories;
    expect(only?.reward).toBe(1.25);
    expect(only?.metrics).toMatchObject({
      "reward/rubric": 0.625,
      "reward/rubric/correct": 0.5,
      "reward/rubric/polite": 1,
      "judge/prompt_tokens": 100,
      "judge/completion_tokens": 10,
      "judge/cost_usd": 1,
      "judge/retries": 0,
    });
    expect(only?.logs).toEqual(["judge rubric/correct: 0.5: number", "judge rubric/polite: 1: tone"]);
    expect(questionOf(model.requests[0]!)).toContain('{"messages":[{"role":"assistant","content":"I think it is 42."}]}');
    expect(String(model.requests[0]!.messages[0]?.content)).toContain("- correct: The number is right.");
  });

  it("takes the median per criterion over several samples", async () => {
    const model = judgeOf((_, index) => answer([0, 0.4, 1][index]!, 1));
    const group = await play([rubricJudge({ model, criteria: CRITERIA, samples: 3, explain: false })], ["42"]);
    expect(group.trajectories[0]?.metrics).toMatchObject({ "reward/rubric/correct": 0.4, "judge/prompt_tokens": 300 });
  });

  it("fails only the rollout that it cannot judge", async () => {
    const model = judgeOf((request) => (questionOf(request).includes('"bad"') ? scoresText([{ id: "correct", score: 1 }]) : answer(1, 1)));
    const group = await play([rubricJudge({ model, criteria: CRITERIA })], ["good", "bad"]);
    expect(group.rewards).toEqual([1]);
    expect(group.exceptions.map(({ message }) => message)).toEqual([expect.stringContaining('missing ids: `"polite"`')]);
  });

  it("adds up the tokens of two judges of one rollout, and replaces them when it is scored again", async () => {
    const rewards = [
      rubricJudge<Scenario>({ model: judgeOf(() => answer(1, 1)), criteria: CRITERIA }),
      referenceJudge<Scenario>({ model: judgeOf(() => '{"equivalent": false}'), reference: (scenario) => scenario.answer }),
    ];
    const group = await play(rewards, ["42"]);
    expect(group.trajectories[0]?.metrics).toMatchObject({ "judge/prompt_tokens": 200, "reward/rubric/polite": 1, "reward/reference": 0 });
    const [again] = await rescore(environmentOf([rewards[1]!]), group.trajectories);
    expect(again?.metrics).toMatchObject({ "judge/prompt_tokens": 100, "reward/reference": 0 });
    expect(again?.metrics).not.toHaveProperty("reward/rubric/polite");
  });

  it.each<[string, unknown]>([
    ["no criteria", []],
    ["a criterion without a name", [{ name: "", description: "x" }]],
    ["a criterion without a description", [{ name: "a" }]],
    ["a weight of 0", [{ name: "a", description: "x", weight: 0 }]],
    ["two criteria of one name", [CRITERIA[0], CRITERIA[0]]],
  ])("rejects %s", (_, criteria) => {
    const options = { model: judgeOf(() => ""), criteria } as RubricJudgeOptions;
    expect(() => rubricJudge(options)).toThrow(expect.objectContaining({ code: "E_CONFIG", param: "criteria" }));
  });
});

describe("referenceJudge", () => {
  const reference = (scenario: Scenario) => scenario.answer;

  it("scores 1 for an equivalent answer and 0 for another one, and shows the judge task, reference and answer", async () => {
    const model = judgeOf((request) => JSON.stringify({ explanation: "compared", equivalent: questionOf(request).includes('"42"') }));
    const group = await play([referenceJudge({ model, reference })], ["42", "43"]);
    expect(group.rewards).toEqual([1, 0]);
    expect(group.trajectories[1]?.logs).toEqual(["judge reference: 0: compared"]);
    expect(questionOf(model.requests[0]!)).toContain('<reference>\n"forty-two"\n</reference>');
    expect(questionOf(model.requests[0]!)).toContain("Write a number.");
  });

  it("sends no request for the reference itself, and scores 0 without a part to compare", async () => {
    const model = judgeOf(() => '{"equivalent": true}');
    const extract = (text: string) => /<answer>(.*)<\/answer>/.exec(text)?.[1];
    const group = await play([referenceJudge({ model, reference, extract })], ["<answer> forty-two </answer>", "forty-two"]);
    expect(group.rewards).toEqual([1, 0]);
    expect(model.requests).toEqual([]);
  });

  it("takes the majority of several verdicts", async () => {
    const model = judgeOf((_, index) => JSON.stringify({ equivalent: index !== 1 }));
    const group = await play([referenceJudge({ model, reference, samples: 3 })], ["42"]);
    expect(group.rewards).toEqual([1]);
  });

  it.each(['{"equivalent": "yes"}', '{"explanation": "no verdict"}', "yes", "[true]"])("rejects the answer %s", async (text) => {
    const group = await play([referenceJudge({ model: judgeOf(() => text), reference })], ["42", "43"]);
    expect(group.exceptions).toHaveLength(2);
  });

  it("passes `validate`, which compares the right answer and an empty one", async () => {
    const model = judgeOf(() => '{"equivalent": false}');
    expect(await validate(environmentOf([referenceJudge({ model, reference })]))).toMatchObject({ isValid: true, findings: [] });
  });

  it("rejects a reference that is not a function", () => {
    const options = { model: judgeOf(() => ""), reference: "42" } as unknown as Parameters<typeof referenceJudge>[0];
    expect(() => referenceJudge(options)).toThrow(expect.objectContaining({ code: "E_CONFIG", param: "reference" }));
  });
});

describe("a service of this package as the judge", () => {
  it("judges with constrained output, as an endpoint and as a policy", async () => {
    await using test = await startTestService({
      answer: ({ prompt }) => {
        const entries = [...prompt.matchAll(/<candidate id="([a-z]+)">\n.*"content":"(\d+)"/g)].map(([, id, text]) => ({
          id,
          explanation: "seen",
          score: Number(text) / 100,
        }));
        return JSON.stringify({ scores: entries });
      },
    });
    const service = await connect({ baseUrl: test.url, apiKey: test.apiKey });
    await using endpoint = judgeEndpoint({ baseUrl: `${test.url}/v1`, apiKey: test.apiKey, model: "whetstone-tiny" });
    const model = await service.models.create({ project: "p", name: "judge", baseModel: "whetstone-tiny" });
    for (const judge of [endpoint, await model.policy(0)]) {
      const environment = defineEnvironment({ ...environmentOf([]), groupRewards: [relativeJudge({ model: judge })] });
      const policy = createScriptedPolicy(["10", "30"].map((text) => ({ text })));
      const [group] = await gatherTrajectoryGroups([SCENARIO], environmentRollout(environment), { policy, groupSize: 2, concurrency: 1 });
      expect(group?.rewards).toEqual([0.1, 0.3]);
      expect(group?.metrics["judge/prompt_tokens"]).toBeGreaterThan(100);
    }
    expect(endpoint.usage.requests).toBe(1);
    expect(test.requests.filter(({ path }) => path === "/v1/chat/completions").map(({ status }) => status)).toEqual([200, 200]);
    await service.close();
  });

  it("judges with the model that ships with the package, held to the schema", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "judge-"));
    onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
    const service = await connect({ dataDir });
    const model = await service.models.create({ project: "p", name: "judge", baseModel: "whetstone-tiny" });
    const reward = rubricJudge<Scenario>({
      model: await model.policy(0),
      criteria: CRITERIA,
      explain: false,
      output: "schema",
      request: { temperature: 0, max_completion_tokens: 200 },
    });
    const group = await play([reward], ["42"]);
    expect(group.exceptions).toEqual([]);
    expect(group.rewards[0]).toBeGreaterThanOrEqual(0);
    expect(group.rewards[0]).toBeLessThanOrEqual(1);
    await service.close();
  });
});
