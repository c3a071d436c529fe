import { ConfigError } from "../../base/errors.ts";
import type { GroupReward, GroupScores } from "../../base/trajectory/group-scoring.ts";
import { rankingForm, scoresForm, type JudgedScore } from "./answers.ts";
import { candidateSet, labeled, type Candidate, type CandidateSet } from "./candidates.ts";
import { resolvedOptions, type JudgeOptions } from "./options.ts";
import { DEFAULT_RUBRIC, relativeMessages, type RelativePrompt } from "./prompts.ts";
import { median, Questioner, type Question } from "./questioner.ts";
import { Spending } from "./spending.ts";
import { getOrThrow, itemAt } from "../../base/util/values.ts";

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

/** Scores by position in `contents`, with explanations. */
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
  const { rubric = DEFAULT_RUBRIC, form = "scores", ...common } = options;
  const resolved = resolvedOptions(common, "relative");
  if (typeof rubric !== "function" && (typeof rubric !== "string" || rubric.trim() === "")) {
    throw new ConfigError(`Expected \`rubric\` to be a text or a function of the scenario, got ${typeof rubric}`, { param: "rubric" });
  }
  if (form !== "scores" && form !== "ranking") {
    throw new ConfigError(`Expected \`form\` to be "scores" or "ranking", got \`${String(form)}\``, { param: "form" });
  }
  const { name, weight, model, explain } = resolved;
  const questioner = new Questioner(resolved);
  const scoreGroup: GroupReward<S>["scoreGroup"] = async ({ scenario, trajectories, seed, signal }) => {
    const set = candidateSet(trajectories);
    const spending = new Spending(model.prices);
    const text = typeof rubric === "function" ? rubric(scenario) : rubric;
    const questionOf = (sample: number): Question<Scores> => {
      const candidates = labeled(set, `relative:${seed}:${sample}`);
      return form === "scores" ? scoresQuestion(candidates, set, text, explain) : rankingQuestion(candidates, set, text, explain);
    };
    const isTrivial = form === "ranking" && set.contents.length === 1;
    const samples = isTrivial ? [[TIE]] : await questioner.sample(questionOf, { spending, signal });
    return toGroupScores(name, set, samples, spending);
  };
  return Object.freeze({ name, weight, scoreGroup });
}

const TIE: JudgedScore = { score: 0.5, explanation: "all rollouts of the group are equal" };

function scoresQuestion(candidates: readonly Candidate[], set: CandidateSet, rubric: string, explain: boolean): Question<Scores> {
  const form = scoresForm(idsOf(candidates), explain);
  const ordered = byContent(candidates);
  return {
    messages: relativeMessages(candidates, set, { rubric, form: "scores", example: form.example }),
    form: {
      ...form,
      parse: (value) => {
        const parsed = form.parse(value);
        return "problem" in parsed ? parsed : { value: ordered.map(({ id }) => getOrThrow(parsed.value, id)) };
      },
    },
  };
}

function rankingQuestion(candidates: readonly Candidate[], set: CandidateSet, rubric: string, explain: boolean): Question<Scores> {
  const form = rankingForm(idsOf(candidates), explain);
  const prompt: RelativePrompt = { rubric, form: "ranking", example: form.example };
  const ordered = byContent(candidates);
  return {
    messages: relativeMessages(candidates, set, prompt),
    form: {
      ...form,
      parse: (value) => {
        const parsed = form.parse(value);
        if ("problem" in parsed) return parsed;
        const { ranking, explanation } = parsed.value;
        return { value: ordered.map(({ id }) => ({ score: 1 - ranking.indexOf(id) / (ranking.length - 1), explanation })) };
      },
    },
  };
}

function idsOf(candidates: readonly Candidate[]): string[] {
  return candidates.map(({ id }) => id);
}

function byContent(candidates: readonly Candidate[]): Candidate[] {
  return candidates.toSorted((a, b) => a.index - b.index);
}

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
