/** Scores of graders. Failures are part of an outcome; only an abort rejects. */
import type { Grader, MultiGrader, SingleGrader, StringCheckGrader, TextMetric } from "../base/schema/index.ts";
import { zip } from "../base/util/values.ts";
import { GraderError } from "./errors.ts";
import { evaluateFormula, parseFormula, type Formula } from "./formula.ts";
import { textSimilarity } from "./metrics/text-similarity.ts";
import { askModel, type GraderComplete, type ModelAnswer } from "./model.ts";
import { parseTemplate, renderTemplate, type TemplateValues } from "./template.ts";

/** Computes a metric of two texts; see `textSimilarity`. */
export type Similarity = (
  metric: TextMetric,
  texts: readonly [text: string, reference: string],
  signal: AbortSignal | undefined,
) => Promise<number>;

/** Inputs of a grader. */
export interface GradeContext {
  readonly values: TemplateValues;
  /** Answers the requests of model graders. */
  readonly complete: GraderComplete;
  /** Computes text metrics. @default on the calling thread */
  readonly similarity?: Similarity | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Score of a part of a multi grader. */
export interface PartScore {
  /** Variable of the formula. */
  readonly variable: string;
  /** Name of the grader. */
  readonly name: string;
  readonly reward: number;
}

/** Result of a grader. */
export interface Outcome {
  /** Score; 0 after an error. */
  readonly reward: number;
  readonly errors: readonly GraderError[];
  /** Answers of models, also the ones that did not parse. */
  readonly answers: readonly ModelAnswer[];
  /** Parts of a multi grader, in its order. */
  readonly parts: readonly PartScore[];
}

/**
 * Scores a sample.
 *
 * @param grader - Grader of a valid form; its templates and its formula may be invalid.
 * @throws the signal's reason.
 */
export async function grade(grader: Grader, context: GradeContext): Promise<Outcome> {
  context.signal?.throwIfAborted();
  return grader.type === "multi" ? gradeMulti(grader, context) : gradeSingle(grader, context);
}

async function gradeSingle(grader: SingleGrader, context: GradeContext): Promise<Outcome> {
  /** Renders a template of the grader. */
  const rendered = (text: string) => renderTemplate(parseTemplate(text), context.values);
  const answers: ModelAnswer[] = [];
  try {
    const reward = await scoreOf(grader, context, { rendered, answers });
    return { reward, errors: [], answers, parts: [] };
  } catch (error) {
    if (!(error instanceof GraderError)) throw error;
    return { reward: 0, errors: [named(error, grader.name)], answers, parts: [] };
  }
}

/** Parts that scoring a grader needs. */
interface Scoring {
  readonly rendered: (text: string) => string;
  /** List to which the answer of a model is added. */
  readonly answers: ModelAnswer[];
}

/** @throws GraderError `E_GRADER` if the grader cannot score the sample. */
async function scoreOf(grader: SingleGrader, context: GradeContext, { rendered, answers }: Scoring): Promise<number> {
  switch (grader.type) {
    case "string_check":
      return Number(isMatch(grader.operation, rendered(grader.input), rendered(grader.reference)));
    case "text_similarity": {
      const { evaluation_metric: metric } = grader;
      const [text, reference] = [rendered(grader.input), rendered(grader.reference)];
      return context.similarity?.(metric, [text, reference], context.signal) ?? textSimilarity(metric, text, reference);
    }
    case "score_model":
    case "label_model":
      return askModel(grader, { ...context, rendered, onAnswer: (answer) => void answers.push(answer) });
  }
}

function isMatch(operation: StringCheckGrader["operation"], input: string, reference: string): boolean {
  switch (operation) {
    case "eq":
      return input === reference;
    case "ne":
      return input !== reference;
    case "like":
      return input.includes(reference);
    case "ilike":
      return input.toLowerCase().includes(reference.toLowerCase());
  }
}

/** Returns the error with the name of its grader in the message. */
function named({ flag, message, retryable, cause }: GraderError, name: string): GraderError {
  return new GraderError(flag, `Grader \`${name}\`: ${message}`, { retryable, cause });
}

/** Runs the parts at the same time, then computes the formula. A part that failed has the score 0 in it. */
async function gradeMulti(grader: MultiGrader, context: GradeContext): Promise<Outcome> {
  const entries = Object.entries(grader.graders);
  const formula = parsedFormula(grader, Object.keys(grader.graders));
  if (formula instanceof GraderError) return { reward: 0, errors: [formula], answers: [], parts: [] };
  const outcomes = await Promise.all(entries.map(([, part]) => gradeSingle(part, context)));
  const parts = zip(entries, outcomes).map(([[variable, { name }], { reward }]) => ({ variable, name, reward }));
  const value = evaluateFormula(formula, Object.fromEntries(parts.map(({ variable, reward }) => [variable, reward])));
  const result = {
    errors: outcomes.flatMap((outcome) => outcome.errors),
    answers: outcomes.flatMap((outcome) => outcome.answers),
    parts,
  };
  if (Number.isFinite(value)) return { reward: value, ...result };
  const scores = parts.map(({ variable, reward }) => `${variable} = ${reward}`).join(", ");
  const message = `Expected a finite value of \`${grader.calculate_output}\`, got ${value} for ${scores}`;
  const error = named(new GraderError("formula_parse_error", message), grader.name);
  return { ...result, reward: 0, errors: [...result.errors, error] };
}

/** Returns the formula of a multi grader, or the error of one that does not parse. */
function parsedFormula({ name, calculate_output: text }: MultiGrader, variables: readonly string[]): Formula | GraderError {
  try {
    return parseFormula(text, variables);
  } catch (error) {
    if (!(error instanceof GraderError)) throw error;
    return named(error, name);
  }
}
