/** Graders with the unmodified `openai` package. */
import OpenAI from "openai";
import type { GraderRunParams } from "openai/resources/fine-tuning/alpha/graders";
import { describe, expect, it, onTestFinished } from "vitest";
import { graderRun } from "../../src/base/schema/index.ts";
import { startTestService, type TestServiceOptions } from "../../src/testing/index.ts";

type ClientGrader = GraderRunParams["grader"];

const EXACT = {
  type: "string_check",
  name: "exact",
  operation: "eq",
  input: "{{ sample.output_json.city }}",
  reference: "{{ item.answer }}",
} as const satisfies ClientGrader;
const CLOSE = {
  type: "text_similarity",
  name: "close",
  evaluation_metric: "rouge_l",
  input: "{{ sample.output_text }}",
  reference: "{{ item.answer }}",
} as const satisfies ClientGrader;
const SCORE = {
  type: "score_model",
  name: "judge",
  model: "whetstone-tiny",
  input: [{ role: "user", content: "Is {{ sample.output_text }} equal to {{ item.answer }}?" }],
  range: [0, 10],
  sampling_params: { seed: 3, max_completions_tokens: 200 },
} as const;

/** Starts a service that answers every request with a text; its client, and the prompts it received. */
async function started(answer = "", options: TestServiceOptions = {}) {
  const prompts: string[] = [];
  const service = await startTestService({ ...options, answer: ({ prompt }) => (prompts.push(prompt), answer) });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const client = new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey, maxRetries: 0 });
  return { client, prompts, service, graders: client.fineTuning.alpha.graders };
}

const input = (more: object = {}) => ({ model_sample: '{"city":"Paris"}', item: { answer: "Paris" }, ...more });

describe("openai's graders", () => {
  it("score a sample, and report failures in the answer", async () => {
    const { graders } = await started();
    const run = await graders.run({ grader: EXACT, ...input() });
    expect(run.reward).toBe(1);
    expect(run.metadata).toMatchObject({ name: "exact", type: "string_check", token_usage: null, sampled_model_name: null });
    expect(graderRun.parse(run)).toEqual(run);
    expect((await graders.run({ grader: CLOSE, model_sample: "The city", item: { answer: "The city of Paris" } })).reward).toBeCloseTo(
      2 / 3,
    );

    const failed = await graders.run({ grader: EXACT, ...input({ model_sample: "Paris" }) });
    expect([failed.reward, failed.metadata.errors.sample_parse_error]).toEqual([0, true]);
    const unknown = await graders.run({ grader: EXACT, model_sample: '{"city":"Paris"}' });
    expect(unknown.metadata.errors.invalid_variable_error).toBe(true);

    const multi = { type: "multi", name: "both", graders: { exact: EXACT, close: CLOSE }, calculate_output: "0.75 * exact + close / 4" };
    const both = await graders.run({ grader: multi as never, ...input() });
    expect([both.sub_rewards["exact"], both.metadata.scores["exact"]]).toEqual([1, 1]);
    expect(both.reward).toBeCloseTo(0.75 + (both.sub_rewards["close"] as number) / 4);
  });

  it("ask models of the service", async () => {
    const { graders, prompts } = await started('{"steps":[{"description":"compare","conclusion":"equal"}],"result":7.5}');
    const run = await graders.run({ grader: SCORE as never, ...input({ model_sample: "Paris" }) });
    expect([run.reward, run.metadata.errors.model_grader_parse_error]).toEqual([7.5, false]);
    expect(prompts).toEqual([expect.stringContaining("Is Paris equal to Paris?")]);
    const usage = run.model_grader_token_usage_per_model["whetstone-tiny"] as Record<string, number>;
    expect(usage["total_tokens"]).toBe(usage["prompt_tokens"]! + usage["completion_tokens"]!);
    expect([run.metadata.sampled_model_name, run.metadata.token_usage]).toEqual(["whetstone-tiny", usage["total_tokens"]]);

    const label = {
      type: "label_model",
      name: "same",
      model: "whetstone-tiny",
      input: SCORE.input,
      labels: ["yes", "no"],
      passing_labels: ["yes"],
    };
    const labelled = await graders.run({ grader: label as never, ...input() });
    expect([labelled.reward, labelled.metadata.errors.model_grader_parse_error]).toEqual([0, true]);

    const stranger = await graders.run({ grader: { ...SCORE, model: "gpt-4o" } as never, ...input() });
    expect([stranger.reward, stranger.metadata.errors.model_grader_server_error]).toEqual([0, true]);
    expect(stranger.metadata.errors.model_grader_server_error_details).toContain("'gpt-4o' does not exist");
  });

  it("are checked without running", async () => {
    const { graders, prompts } = await started();
    expect(await graders.validate({ grader: EXACT })).toEqual({ grader: EXACT });
    expect(await graders.validate({ grader: SCORE as never })).toEqual({ grader: SCORE });
    const single = { type: "multi", graders: EXACT, calculate_output: "exact" };
    expect(await graders.validate({ grader: single as never })).toEqual({
      grader: { ...single, name: "multi", graders: { exact: EXACT } },
    });
    expect(prompts).toEqual([]);
  });

  it.each([
    ["no grader", undefined, "grader", "E_ARGUMENT"],
    ["a python grader", { type: "python", name: "p", source: "" }, "grader.type", "E_UNSUPPORTED"],
    ["the metric cosine", { ...CLOSE, evaluation_metric: "cosine" }, "grader.evaluation_metric", "E_UNSUPPORTED"],
    ["an unknown field", { ...EXACT, threshold: 1 }, "grader.threshold", "E_ARGUMENT"],
    ["an unknown operation", { ...EXACT, operation: "gt" }, "grader.operation", "E_ARGUMENT"],
  ])("reject %s, also when they run", async (_, grader, param, code) => {
    const { graders } = await started();
    const error = { status: 400, type: "BadRequestError", param, error: { error_code: code } };
    await expect(graders.validate({ grader: grader as never })).rejects.toMatchObject(error);
    await expect(graders.run({ grader: grader as never, ...input() })).rejects.toMatchObject(error);
  });

  it("reject templates and formulas that do not parse, without running", async () => {
    const { graders } = await started();
    await expect(graders.validate({ grader: { ...EXACT, input: "{{ other }}" } })).rejects.toMatchObject({
      status: 400,
      param: "grader.input",
    });
    const multi = { type: "multi", graders: { exact: EXACT }, calculate_output: "exact +" };
    await expect(graders.validate({ grader: multi as never })).rejects.toMatchObject({ status: 400, param: "grader.calculate_output" });
    expect((await graders.run({ grader: multi as never, ...input() })).metadata.errors.formula_parse_error).toBe(true);
  });

  it("reject a request without a sample, and the key of a session", async () => {
    const { graders, service } = await started();
    await expect(graders.run({ grader: EXACT } as never)).rejects.toMatchObject({ status: 400, param: "model_sample" });
    const response = await fetch(`${service.url}/v1/preview/sessions`, {
      method: "POST",
      headers: { authorization: `Bearer ${service.apiKey}` },
      body: JSON.stringify({ model: "whetstone-tiny" }),
    });
    const { key } = (await response.json()) as { key: string };
    const session = new OpenAI({ baseURL: service.inferenceUrl, apiKey: key, maxRetries: 0 });
    await expect(session.fineTuning.alpha.graders.validate({ grader: EXACT })).rejects.toBeInstanceOf(OpenAI.PermissionDeniedError);
  });
});
