/** Judge that compares the last text of a rollout with a known answer. */
import { ConfigError } from "../../base/errors.ts";
import type { Reward, RewardInput } from "../../base/trajectory/scoring.ts";
import { verdictForm } from "./answers.ts";
import { jsonLine, labeled } from "./candidates.ts";
import { resolvedOptions, type JudgeOptions } from "./options.ts";
import { referenceMessages } from "./prompts.ts";
import { median, Questioner } from "./questioner.ts";
import { scoreLines } from "./relative.ts";
import { attemptOf } from "./rubric.ts";
import { Spending } from "./spending.ts";
import { first } from "../../base/util/values.ts";

/** Options of {@link referenceJudge}. */
export interface ReferenceJudgeOptions<S> extends JudgeOptions {
  /** Returns the known right answer of a scenario. */
  readonly reference: (scenario: S) => string;
  /** Returns the part of the last text to compare; null or undefined scores 0. @default the whole text */
  readonly extract?: ((text: string, scenario: S) => string | null | undefined) | undefined;
}

/**
 * Creates a reward for which a language model decides if the last text of a rollout is equivalent to a known answer: 1 if it is, else 0.
 * With several samples, the value is the median of the verdicts. A text that equals the reference, apart from white space at its ends,
 * scores 1 without a request.
 *
 * Invalid answers of the judge are rejected as in `relativeJudge`; then only the judged rollout fails.
 *
 * @param options - Model, reference answer and options of all judges.
 * @returns a reward for `defineEnvironment`, named `reference` by default.
 * @throws ConfigError `E_CONFIG` for an invalid option.
 * @example
 * ```ts
 * import { judgeEndpoint } from "whetstone/judge";
 *
 * referenceJudge({
 *   model: judgeEndpoint({ baseUrl: "http://127.0.0.1:8000/v1", model: "qwen3-32b" }),
 *   reference: ({ answer }: { readonly answer: string }) => answer,
 * });
 * ```
 */
export function referenceJudge<S>({ reference, extract, ...options }: ReferenceJudgeOptions<S>): Reward<S> {
  const resolved = resolvedOptions(options, "reference");
  checkFunction("reference", reference);
  if (extract !== undefined) checkFunction("extract", extract);
  const { name, weight, model, explain } = resolved;
  const questioner = new Questioner(resolved);
  const form = verdictForm(explain);
  const score: Reward<S>["score"] = async ({ scenario, text, trajectory, signal }: RewardInput<S>) => {
    const answer = extract === undefined ? text : extract(text, scenario);
    if (answer === null || answer === undefined) return 0;
    const right = reference(scenario);
    const spending = new Spending(model.prices);
    if (answer.trim() === right.trim()) return { value: 1, metrics: spending.metrics() };
    const { context } = attemptOf(trajectory);
    const questionOf = (sample: number) => {
      const candidate = first(labeled({ contents: [jsonLine(answer)], context, tools: null }, `reference:${sample}`));
      return { messages: referenceMessages(candidate, { reference: jsonLine(right), context, example: form.example }), form };
    };
    const verdicts = await questioner.sample(questionOf, { spending, signal });
    const scores = verdicts.map(({ equivalent, explanation }) => ({ score: Number(equivalent), explanation }));
    return { value: median(scores.map((each) => each.score)), metrics: spending.metrics(), logs: scoreLines(name, scores) };
  };
  return Object.freeze({ name, weight, score });
}

/** @throws ConfigError `E_CONFIG` for an option that is not a function. */
function checkFunction(param: string, value: unknown): void {
  if (typeof value === "function") return;
  throw new ConfigError(`Expected \`${param}\` to be a function of a scenario, got ${typeof value}`, { param });
}
