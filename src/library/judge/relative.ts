/** Judge that compares the rollouts of a group with each other, by scores or by a ranking. */
import { ConfigError } from "../../base/errors.ts";
import type { GroupReward, GroupScores } from "../../base/trajectory/group-scoring.ts";
import { rankingForm, scoresForm, type AnswerForm, type JudgedScore, type Parsed } from "./answers.ts";
import { candidateSet, labeled, type Candidate, type CandidateSet } from "./candidates.ts";
import { resolvedOptions, type JudgeOptions } from "./options.ts";
import { DEFAULT_RUBRIC, relativeMessages } from "./prompts.ts";
import { median, Questioner, type Question } from "./questioner.ts";
import { Spending } from "./spending.ts";
import { getOrThrow, itemAt, refuse } from "../../base/util/values.ts";

/** Options of {@link relativeJudge}. */
export interface RelativeJudgeOptions<S> extends JudgeOptions {
  /** Grading standards, or a function that returns them for a scenario. @default {@link DEFAULT_RUBRIC} */
  readonly rubric?: string | ((scenario: S) => string) | undefined;
  /**
   * Form of the judgment. `scores`: a score in [0, 1] per candidate. `ranking`: an order of the candidates, converted to evenly spaced scores
   * from 1 (best) to 0 (worst).
   *
   * @default "scores"
   */
  readonly form?: "scores" | "ranking" | undefined;
}

/** Scores with explanations, in the order of the `contents` of a {@link CandidateSet}. */
type Scores = readonly JudgedScore[];

/**
 * Creates a group reward in [0, 1] that a language model gives by comparing the rollouts of a scenario with each other. Needs no right
 * answers: the judge infers the goal from the conversation.
 *
 * Equal rollouts are one candidate and share its score. Ids and order of the candidates depend on their contents and the group's seed, so
 * that rewards do not depend on the order of the rollouts. Scores are matched by id. An answer with a wrong number of scores, an unknown or
 * repeated id, or a score outside [0, 1] is rejected: the judge is asked once more with the problem; then the group reward throws, and the
 * rollouts of the group fail. With `form: "ranking"`, a group of equal rollouts gets 0.5 without a request.
 *
 * The group gets the metrics `judge/prompt_tokens`, `judge/completion_tokens`, `judge/cost_usd` (with prices), `judge/cached` and
 * `judge/retries`; the logs of each trajectory get the explanation of its score.
 *
 * @param options - Model, rubric, form and options of all judges.
 * @returns a group reward for `defineEnvironment`, named `relative` by default.
 * @throws ConfigError `E_CONFIG` for an invalid option.
 * @source RULER of OpenPipe ART, with which rubric and shared context agree in intent.
 * @example
 * ```ts
 * import { defineEnvironment } from "whetstone";
 * import { judgeEndpoint } from "whetstone/judge";
 *
 * const model = judgeEndpoint({ baseUrl: "http://127.0.0.1:8000/v1", model: "qwen3-32b" });
 * const judged = defineEnvironment({ ...environment, rewards: [], groupRewards: [relativeJudge({ model, samples: 3 })] });
 * ```
 */
export function relativeJudge<S>(options: RelativeJudgeOptions<S>): GroupReward<S> {
  const { rubric = DEFAULT_RUBRIC, form = "scores", ...commonOptions } = options;
  const resolved = resolvedOptions(commonOptions, "relative");
  if (typeof rubric !== "function" && (typeof rubric !== "string" || rubric.trim() === "")) {
    throw new ConfigError(`Expected \`rubric\` to be a text or a function of the scenario, got ${typeof rubric}`, { param: "rubric" });
  }
  if (form !== "scores" && form !== "ranking") refuse("form", '"scores" or "ranking"', form, ConfigError);
  const { name, weight, model, explain } = resolved;
  const questioner = new Questioner(resolved);
  const scoreGroup: GroupReward<S>["scoreGroup"] = async ({ scenario, trajectories, seed, signal }) => {
    const candidates = candidateSet(trajectories);
    const spending = new Spending(model.prices);
    const settings = { rubric: typeof rubric === "function" ? rubric(scenario) : rubric, form, explain };
    const questionOf = (sample: number) => questionAbout(labeled(candidates, `relative:${seed}:${sample}`), candidates, settings);
    const isSingleRanking = form === "ranking" && candidates.contents.length === 1;
    const samples = isSingleRanking ? [[TIE]] : await questioner.sample(questionOf, { spending, signal });
    return toGroupScores(name, candidates, samples, spending);
  };
  return Object.freeze({ name, weight, scoreGroup });
}

/** Score of every rollout if a ranking has only one candidate. */
const TIE: JudgedScore = { score: 0.5, explanation: "all rollouts of the group are equal" };

/** Settings of a question about candidates: grading standards, form of the answer, and whether to ask for explanations. */
interface QuestionSettings {
  readonly rubric: string;
  readonly form: "scores" | "ranking";
  readonly explain: boolean;
}

/** Returns the question about all candidates. The value of its answer has the scores in the order of the contents. */
function questionAbout(
  candidates: readonly Candidate[],
  shared: CandidateSet,
  { rubric, form, explain }: QuestionSettings,
): Question<Scores> {
  const ids = candidates.map(({ id }) => id);
  const idsByContent = candidates.toSorted((a, b) => a.index - b.index).map(({ id }) => id);
  const answerForm = form === "scores" ? scoresAnswer(ids, idsByContent, explain) : rankingAnswer(ids, idsByContent, explain);
  return { messages: relativeMessages(candidates, shared, { rubric, form, example: answerForm.example }), form: answerForm };
}

/** Returns the form of scores by id, parsed to scores in the order of `idsByContent`. */
function scoresAnswer(ids: readonly string[], idsByContent: readonly string[], explain: boolean): AnswerForm<Scores> {
  return converted(scoresForm(ids, explain), (scores) => idsByContent.map((id) => getOrThrow(scores, id)));
}

/** Returns the form of a ranking, parsed to evenly spaced scores in the order of `idsByContent`. Needs at least two ids. */
function rankingAnswer(ids: readonly string[], idsByContent: readonly string[], explain: boolean): AnswerForm<Scores> {
  return converted(rankingForm(ids, explain), ({ ranking, explanation }) =>
    idsByContent.map((id) => ({ score: 1 - ranking.indexOf(id) / (ranking.length - 1), explanation })),
  );
}

/** Returns a form with the same answers, parsed to scores. */
function converted<T>(form: AnswerForm<T>, toScores: (value: T) => Scores): AnswerForm<Scores> {
  const parse = (value: unknown): Parsed<Scores> => {
    const parsed = form.parse(value);
    return "problem" in parsed ? parsed : { value: toScores(parsed.value) };
  };
  return { ...form, parse };
}

/** Returns the median score of each rollout over the samples, and the metrics of the group. */
function toGroupScores(name: string, { contentOf }: CandidateSet, samples: readonly Scores[], spending: Spending): GroupScores {
  const scores = contentOf.map((index) => {
    const judged = samples.map((sample) => itemAt(sample, index));
    const value = median(judged.map(({ score }) => score));
    return { value, logs: scoreLines(name, judged) };
  });
  return { scores, metrics: spending.metrics() };
}

/** Returns a log line per explained score. */
export function scoreLines(name: string, judged: readonly JudgedScore[]): string[] {
  return judged.filter(({ explanation }) => explanation !== "").map(({ score, explanation }) => `judge ${name}: ${score}: ${explanation}`);
}
