/** Scores of graders. The failure of a grader is part of its result; only an abort, or an error in the code of the caller, rejects. */
import type { Grader, MultiGrader, SingleGrader, StringCheckGrader, TextMetric } from "../base/schema/index.ts";
import { zip } from "../base/util/values.ts";
import { GraderError } from "./errors.ts";
import { evaluateFormula, parseFormula, type Formula } from "./formula.ts";
import { textSimilarity } from "./metrics/text-similarity.ts";
import { askModel, type GraderComplete, type ModelAnswer } from "./model.ts";
import { parseGraderTemplate, renderTemplate, type TemplateValues } from "./template.ts";

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
export interface GradeResult {
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
export async function grade(grader: Grader, context: GradeContext): Promise<GradeResult> {
  context.signal?.throwIfAborted();
  return grader.type === "multi" ? gradeMulti(grader, context) : gradeSingle(grader, context);
}

/** Scores a sample with a grader other than a multi grader. */
async function gradeSingle(grader: SingleGrader, context: GradeContext): Promise<GradeResult> {
  const render = (template: string) => renderTemplate(parseGraderTemplate(template), context.values);
  const answers: ModelAnswer[] = [];
  try {
    const reward = await scoreOf(grader, context, { render, answers });
    return { reward, errors: [], answers, parts: [] };
  } catch (error) {
    if (!(error instanceof GraderError)) throw error;
    return { reward: 0, errors: [withGraderName(error, grader.name)], answers, parts: [] };
  }
}

/** Rendering and recording of one grader. */
interface Scoring {
  /** Renders a template of the grader. */
  readonly render: (template: string) => string;
  /** List to which the answer of a model is added, also if the answer does not parse. */
  readonly answers: ModelAnswer[];
}

/** Returns the score of a sample. @throws GraderError `E_GRADER` if the grader cannot score the sample. */
async function scoreOf(grader: SingleGrader, context: GradeContext, { render, answers }: Scoring): Promise<number> {
  switch (grader.type) {
    case "string_check":
      return Number(isMatch(grader.operation, render(grader.input), render(grader.reference)));
    case "text_similarity": {
      const { evaluation_metric: metric } = grader;
      const text = render(grader.input);
      const reference = render(grader.reference);
      return context.similarity?.(metric, [text, reference], context.signal) ?? textSimilarity(metric, text, reference);
    }
    case "score_model":
    case "label_model":
      return askModel(grader, { ...context, render, onAnswer: (answer) => void answers.push(answer) });
  }
}

/** Whether an input matches a reference; `like` and `ilike` look for the reference in the input. */
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
function withGraderName({ flag, message, retryable, cause }: GraderError, name: string): GraderError {
  return new GraderError(flag, `Grader \`${name}\`: ${message}`, { retryable, cause });
}

/** Runs the parts at the same time, then computes the formula. A part that failed has the score 0 in it. */
async function gradeMulti(grader: MultiGrader, context: GradeContext): Promise<GradeResult> {
  const entries = Object.entries(grader.graders);
  const formula = tryParseFormula(grader);
  if (formula instanceof GraderError) return { reward: 0, errors: [formula], answers: [], parts: [] };
  const results = await Promise.all(entries.map(([, part]) => gradeSingle(part, context)));
  const parts = zip(entries, results).map(([[variable, { name }], { reward }]) => ({ variable, name, reward }));
  const value = evaluateFormula(formula, Object.fromEntries(parts.map(({ variable, reward }) => [variable, reward])));
  const partResults = {
    errors: results.flatMap(({ errors }) => errors),
    answers: results.flatMap(({ answers }) => answers),
    parts,
  };
  if (Number.isFinite(value)) return { reward: value, ...partResults };
  const scores = parts.map(({ variable, reward }) => `${variable} = ${reward}`).join(", ");
  const message = `Expected a finite value of \`${grader.calculate_output}\`, got ${value} for ${scores}`;
  const error = withGraderName(new GraderError("formula_parse_error", message), grader.name);
  return { ...partResults, reward: 0, errors: [...partResults.errors, error] };
}

/** Parses the formula of a multi grader. Returns the error of a formula that does not parse. */
function tryParseFormula({ name, graders, calculate_output: text }: MultiGrader): Formula | GraderError {
  try {
    return parseFormula(text, Object.keys(graders));
  } catch (error) {
    if (!(error instanceof GraderError)) throw error;
    return withGraderName(error, name);
  }
}
