/** Judge that scores each rollout by itself, on named criteria. */
import { ConfigError } from "../../base/errors.ts";
import { Trajectory } from "../../base/trajectory/trajectory.ts";
import { REWARD_PREFIX, type Reward, type RewardInput, type ScoredTrajectory } from "../../base/trajectory/scoring.ts";
import { scoresForm } from "./answers.ts";
import { candidateSet, labeled, type CandidateSet } from "./candidates.ts";
import { resolvedOptions, type JudgeOptions } from "./options.ts";
import { rubricMessages, type RubricCriterion } from "./prompts.ts";
import { median, Questioner } from "./questioner.ts";
import { scoreLines } from "./relative.ts";
import { Spending } from "./spending.ts";
import { first, getOrThrow } from "../../base/util/values.ts";

/** Options of {@link rubricJudge}. */
export interface RubricJudgeOptions extends JudgeOptions {
  /** Criteria with different names; at least one. */
  readonly criteria: readonly RubricCriterion[];
}

/**
 * Creates a reward in [0, 1] for which a language model scores each rollout on named criteria. The value is the mean of the criterion
 * scores, weighted by the criterion weights; each score is the metric `reward/<judge>/<criterion>` of the trajectory.
 *
 * Rollouts are judged independently of each other; to compare them, use `relativeJudge`. Invalid answers are rejected as there; then only
 * the judged rollout fails. Tokens and cost are metrics of the trajectory, and explanations are in its logs.
 *
 * @param options - Model, criteria and options of all judges.
 * @returns a reward for `defineEnvironment`, named `rubric` by default.
 * @throws ConfigError `E_CONFIG` for an invalid option, no criteria, or two criteria with the same name.
 * @example
 * ```ts
 * import { judgeEndpoint } from "whetstone/judge";
 *
 * rubricJudge({
 *   model: judgeEndpoint({ baseUrl: "http://127.0.0.1:8000/v1", model: "qwen3-32b" }),
 *   criteria: [
 *     { name: "correct", description: "The final answer is right.", weight: 3 },
 *     { name: "polite", description: "The tone is friendly and respectful." },
 *   ],
 * });
 * ```
 */
export function rubricJudge<S = unknown>({ criteria, ...options }: RubricJudgeOptions): Reward<S> {
  const resolved = resolvedOptions(options, "rubric");
  checkCriteria(criteria);
  const { name, weight, model, explain } = resolved;
  const questioner = new Questioner(resolved);
  const criterionNames = criteria.map((criterion) => criterion.name);
  const form = scoresForm(criterionNames, explain);
  const totalWeight = criteria.reduce((sum, criterion) => sum + (criterion.weight ?? 1), 0);
  const score: Reward<S>["score"] = async ({ trajectory, signal }: RewardInput<S>) => {
    const shared = attemptOf(trajectory);
    const spending = new Spending(model.prices);
    const questionOf = (sample: number) => {
      const attempt = first(labeled(shared, `rubric:${sample}`));
      return { messages: rubricMessages(attempt, shared, { criteria, example: form.example }), form };
    };
    const samples = await questioner.sample(questionOf, { spending, signal });
    const results = criteria.map((criterion) => {
      const judged = samples.map((scores) => getOrThrow(scores, criterion.name));
      const value = median(judged.map((each) => each.score));
      return { label: `${name}/${criterion.name}`, judged, value, weighted: (criterion.weight ?? 1) * value };
    });
    const criterionMetrics = Object.fromEntries(results.map(({ label, value }) => [REWARD_PREFIX + label, value]));
    return {
      value: results.reduce((sum, { weighted }) => sum + weighted, 0) / totalWeight,
      metrics: { ...criterionMetrics, ...spending.metrics() },
      logs: results.flatMap(({ label, judged }) => scoreLines(label, judged)),
    };
  };
  return Object.freeze({ name, weight, score });
}

/** Prepares one rollout for a judge. Its messages before the first sampled turn are the context, its other messages the only content. */
export function attemptOf(trajectory: ScoredTrajectory): CandidateSet {
  if (Trajectory.isInstance(trajectory)) return candidateSet([trajectory]);
  return candidateSet([{ messagesAndChoices: trajectory.messages(), additionalHistories: [], tools: [] }]);
}

/** @throws ConfigError `E_CONFIG` as {@link rubricJudge}. */
function checkCriteria(criteria: readonly RubricCriterion[]): void {
  const fail = (problem: string): never => {
    throw new ConfigError(`Expected \`criteria\` ${problem}`, { param: "criteria" });
  };
  if (!Array.isArray(criteria) || criteria.length === 0) fail("to be a list with at least one criterion");
  const names = new Set<string>();
  for (const { name, description, weight = 1 } of criteria) {
    if (typeof name !== "string" || name.trim() === "") fail("to have names");
    if (typeof description !== "string" || description.trim() === "") fail(`to have descriptions, got none for \`${name}\``);
    if (!(Number.isFinite(weight) && weight > 0)) fail(`to have weights above 0, got \`${String(weight)}\` for \`${name}\``);
    if (names.has(name)) fail(`to have different names, got \`${name}\` twice`);
    names.add(name);
  }
}
