/** Graders as rewards of environments. */
import { ConfigError } from "../base/errors.ts";
import type { Grader } from "../base/schema/index.ts";
import { textOf } from "../base/trajectory/messages.ts";
import { normalizedReward, REWARD_PREFIX, type Reward, type RewardScore, type ScoredTrajectory } from "../base/trajectory/scoring.ts";
import { checkGrader } from "./check.ts";
import { firstFailure } from "./errors.ts";
import { grade, type GradeResult } from "./grade.ts";
import type { GraderComplete } from "./model.ts";
import { requireComplete } from "./run.ts";
import { gradedSample, type GraderSample } from "./sample.ts";

/** Options of {@link graderReward}. */
export interface GraderRewardOptions<S> {
  /** Name of the reward. @default the name of the grader */
  readonly name?: string | undefined;
  /** Returns the `item` of the grader's templates. @default the scenario itself */
  readonly item?: ((scenario: S) => unknown) | undefined;
  /**
   * Answers the requests of model graders; required for them. An endpoint of `whetstone/judge` answers with its own model, with its limits
   * and retries, and ignores the grader's `model`.
   *
   * @default none
   */
  readonly complete?: GraderComplete | undefined;
}

/**
 * Creates a reward from a grader of OpenAI's fine-tuning API. The sample is the last assistant message of the rollout. The score of each
 * part of a multi grader becomes the metric `reward/<name>/<variable>`, the tokens of models `grader/prompt_tokens` and
 * `grader/completion_tokens`.
 *
 * If the sample lacks a value that a template names, for example because its text is not JSON, the grader scores 0; in a multi grader only
 * the part with this template scores 0. Every other failure fails the rollout, which is recorded as data without a reward.
 *
 * @param grader - Grader.
 * @param options - Name of the reward, item of a scenario, and the function that answers requests to models.
 * @returns a reward of weight 1.
 * @throws UnsupportedError `E_UNSUPPORTED`, ArgumentError `E_ARGUMENT` for an invalid grader, or a model grader without `complete`.
 * @throws ConfigError `E_CONFIG` if `item` is not a function, or for an empty name.
 * @example
 * ```ts
 * import { graderReward } from "whetstone/graders";
 *
 * graderReward<{ answer: string }>({
 *   type: "text_similarity",
 *   name: "close",
 *   evaluation_metric: "rouge_l",
 *   input: "{{ sample.output_text }}",
 *   reference: "{{ item.answer }}",
 * });
 * ```
 */
export function graderReward<S>(grader: Grader, { name, item, complete }: GraderRewardOptions<S> = {}): Reward<S> {
  if (item !== undefined && typeof item !== "function") {
    throw new ConfigError(`Expected \`item\` to be a function of a scenario, got ${typeof item}`, { param: "item" });
  }
  const checkedGrader = checkGrader(grader);
  const completeRequest = requireComplete(checkedGrader, complete);
  const label = name ?? checkedGrader.name;
  const score: Reward<S>["score"] = async ({ scenario, trajectory, signal }) => {
    const values = { item: item === undefined ? scenario : item(scenario), sample: gradedSample(sampleOf(trajectory)) };
    return scoreOf(await grade(checkedGrader, { values, complete: completeRequest, signal }), label);
  };
  return normalizedReward({ name: label, score });
}

/** Returns the last assistant message as a sample; an empty text without one. */
function sampleOf(trajectory: ScoredTrajectory): GraderSample {
  const message = trajectory.messages().findLast(({ role }) => role === "assistant");
  if (message === undefined) return { output_text: "" };
  const text = textOf(message);
  const lastChoice = trajectory.choices.at(-1);
  // The rollout may have added an assistant message that was not sampled, and has no choice.
  const isSampled = lastChoice !== undefined && textOf(lastChoice) === text;
  const choices = isSampled ? [{ index: 0, message: lastChoice.message, finish_reason: lastChoice.finish_reason }] : undefined;
  return { output_text: text, output_tools: message.tool_calls ?? [], choices };
}

/**
 * Converts the result of a grader to a score. `label` is the name of the reward.
 *
 * @throws GraderError `E_GRADER` for a failure that the sample does not cause.
 */
function scoreOf({ reward: value, errors, parts, answers }: GradeResult, label: string): RewardScore {
  const failure = firstFailure(errors);
  if (failure !== null) throw failure;
  const metrics = Object.fromEntries(parts.map(({ variable, reward: score }) => [`${REWARD_PREFIX}${label}/${variable}`, score]));
  const tokens = (key: "promptTokens" | "completionTokens") => answers.reduce((sum, answer) => sum + answer[key], 0);
  const usage = { "grader/prompt_tokens": tokens("promptTokens"), "grader/completion_tokens": tokens("completionTokens") };
  return {
    value,
    metrics: answers.length === 0 ? metrics : { ...metrics, ...usage },
    logs: errors.map(({ message }) => message),
  };
}
