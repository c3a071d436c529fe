/** Graders as the route `graders/run` of the fine-tuning API runs them. */
import { ArgumentError, InternalError } from "../base/errors.ts";
import type { Grader, GraderErrors, GraderRun } from "../base/schema/index.ts";
import { parseGrader } from "./check.ts";
import type { GraderError, GraderErrorFlag } from "./errors.ts";
import { grade, type GradeResult, type Similarity } from "./grade.ts";
import type { GraderComplete, ModelAnswer } from "./model.ts";
import { gradedSample, type GradedSample, type GraderSample } from "./sample.ts";

/** Values that the templates of a grader name. */
export interface GraderInput {
  /** Row of the dataset, the `item` of templates. @default {} */
  readonly item?: unknown;
  /** Output of the graded model, the `sample` of templates. */
  readonly sample: GraderSample;
}

/** Options of {@link runGrader}. */
export interface RunGraderOptions {
  /** Answers the requests of model graders; required for them. @default none */
  readonly complete?: GraderComplete | undefined;
  /** Aborts the requests of model graders. @default none */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Grades a sample and answers as `POST /v1/fine_tuning/alpha/graders/run` does. A failure gives the reward 0 and its flag in
 * `metadata.errors`; in a multi grader, a part that failed has the score 0 in the formula.
 *
 * @param grader - Grader.
 * @param input - Item and sample.
 * @param options - Function that answers requests to models, and a signal.
 * @returns reward, rewards of the parts, errors and tokens.
 * @throws UnsupportedError `E_UNSUPPORTED`, ArgumentError `E_ARGUMENT` as `checkGrader` for fields, before anything runs.
 * @throws ArgumentError `E_ARGUMENT` for a model grader without `complete`.
 * @throws the signal's reason.
 * @example
 * ```ts
 * import { runGrader } from "whetstone/graders";
 *
 * const { reward } = await runGrader(
 *   { type: "string_check", name: "exact", operation: "eq", input: "{{ sample.output_text }}", reference: "{{ item.answer }}" },
 *   { item: { answer: "42" }, sample: { output_text: "42" } },
 * );
 * console.log(reward); // 1
 * ```
 */
export async function runGrader(grader: Grader, input: GraderInput, options: RunGraderOptions = {}): Promise<GraderRun> {
  return runGraderWith(grader, input, options);
}

/** Runs {@link runGrader} with the function that computes text metrics. */
export async function runGraderWith(
  grader: Grader,
  { item = {}, sample }: GraderInput,
  { complete, signal, similarity }: RunGraderOptions & { readonly similarity?: Similarity | undefined },
): Promise<GraderRun> {
  const startMs = performance.now();
  const parsed = parseGrader(grader);
  const values = { item, sample: gradedSample(sample) };
  const result = await grade(parsed, { values, complete: requireComplete(parsed, complete), similarity, signal });
  const seconds = (performance.now() - startMs) / 1000;
  return {
    reward: result.reward,
    sub_rewards: Object.fromEntries(result.parts.map(({ variable, reward }) => [variable, reward])),
    model_grader_token_usage_per_model: usageByModel(result.answers),
    metadata: {
      name: parsed.name,
      type: parsed.type,
      errors: errorsOf(result.errors, values.sample),
      execution_time: seconds,
      scores: Object.fromEntries(result.parts.map(({ name, reward }) => [name, reward])),
      token_usage: result.answers.length === 0 ? null : totalTokens(result),
      sampled_model_name: result.answers[0]?.model ?? null,
    },
  };
}

/** Returns `complete`, which a grader that asks a model requires. @throws ArgumentError `E_ARGUMENT` without it */
export function requireComplete(grader: Grader, complete: GraderComplete | undefined): GraderComplete {
  if (complete !== undefined) return complete;
  const parts = grader.type === "multi" ? Object.values(grader.graders) : [grader];
  const modelGrader = parts.find(({ type }) => type === "score_model" || type === "label_model");
  if (modelGrader === undefined) return () => Promise.reject(new InternalError("Expected no request of a grader without a model"));
  const message = `Expected \`complete\` for the grader \`${modelGrader.name}\`, which asks a model: pass a function that answers chat requests`;
  throw new ArgumentError(message, { param: "complete" });
}

/** Returns the tokens of all answers of models. */
function totalTokens({ answers }: GradeResult): number {
  return answers.reduce((sum, { promptTokens, completionTokens }) => sum + promptTokens + completionTokens, 0);
}

/** Returns the tokens of the answers by model. */
function usageByModel(answers: readonly ModelAnswer[]): GraderRun["model_grader_token_usage_per_model"] {
  const models = new Set(answers.map(({ model }) => model));
  return Object.fromEntries(
    [...models].map((name) => {
      const modelAnswers = answers.filter(({ model }) => model === name);
      const sum = (key: "promptTokens" | "completionTokens" | "cachedTokens") =>
        modelAnswers.reduce((total, answer) => total + answer[key], 0);
      const prompt = sum("promptTokens");
      const completion = sum("completionTokens");
      const usage = {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: prompt + completion,
        cached_tokens: sum("cachedTokens"),
      };
      return [name, usage];
    }),
  );
}

/** Returns the flags and messages of errors. Flags of `python` graders, which are not supported, are always false. */
function errorsOf(errors: readonly GraderError[], { choices }: GradedSample): GraderErrors {
  const has = (name: GraderErrorFlag) => errors.some(({ flag }) => flag === name);
  return {
    formula_parse_error: has("formula_parse_error"),
    invalid_variable_error: has("invalid_variable_error"),
    model_grader_parse_error: has("model_grader_parse_error"),
    model_grader_refusal_error: has("model_grader_refusal_error"),
    model_grader_server_error: has("model_grader_server_error"),
    model_grader_server_error_details: errors.find(({ flag }) => flag === "model_grader_server_error")?.message ?? null,
    other_error: has("other_error"),
    python_grader_runtime_error: false,
    python_grader_runtime_error_details: null,
    python_grader_server_error: false,
    python_grader_server_error_type: null,
    sample_parse_error: has("sample_parse_error"),
    truncated_observation_error: choices[0]?.finish_reason === "length",
    unresponsive_reward_error: has("unresponsive_reward_error"),
    details: errors.map(({ message }) => message),
  };
}
