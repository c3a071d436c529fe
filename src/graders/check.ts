/** Checks of graders before anything runs: the schema, settings of OpenAI's format that are not supported, templates and formulas. */
import type { z } from "zod";
import { ArgumentError, UnsupportedError } from "../base/errors.ts";
import {
  labelModelGrader,
  multiGrader,
  scoreModelGrader,
  stringCheckGrader,
  textSimilarityGrader,
  type Grader,
  type GraderMessage,
  type SingleGrader,
} from "../base/schema/index.ts";
import { shown } from "../base/util/shown.ts";
import { parseWith } from "../base/util/validation.ts";
import { isRecord } from "../base/util/values.ts";
import { GraderError } from "./errors.ts";
import { FUNCTION_NAMES, parseFormula } from "./formula.ts";
import { gradedSample } from "./sample.ts";
import { parseGraderTemplate, pathsOf, valueAt } from "./template.ts";

/** Path of a value in a request. */
type Path = readonly PropertyKey[];

/** Options of {@link checkGrader} and {@link checkItem}. */
export interface CheckOptions {
  /** Path of the checked value in a request, prefixed to `param` of errors. @default [] */
  readonly at?: readonly PropertyKey[] | undefined;
}

/** Schemas by type. The schema of {@link Grader} itself would report errors of every type at once. */
const SCHEMAS = {
  string_check: stringCheckGrader,
  text_similarity: textSimilarityGrader,
  score_model: scoreModelGrader,
  label_model: labelModelGrader,
  multi: multiGrader,
} as const satisfies Readonly<Record<Grader["type"], z.ZodType>>;

/**
 * Checks a grader, as before a training job: its fields, templates and formula. Nothing runs, and no model is asked.
 *
 * @param grader - Grader, as JSON or a value of its type.
 * @param options - Path of the grader in a request.
 * @returns the grader with defaults.
 * @throws UnsupportedError `E_UNSUPPORTED` for a `python` grader, the metric `cosine`, images, audio, and a multi grader in another one.
 * @throws ArgumentError `E_ARGUMENT` for any other invalid grader; `param` is the path of the field.
 * @example
 * ```ts
 * import { checkGrader } from "whetstone/graders";
 *
 * checkGrader({ type: "string_check", name: "exact", operation: "eq", input: "{{ sample.output_text }}", reference: "{{ item.answer }}" });
 * ```
 */
export function checkGrader(grader: unknown, { at = [] }: CheckOptions = {}): Grader {
  const parsed = parseGrader(grader, at);
  for (const { path, text } of templatesOf(parsed, at)) withParam(path, () => parseGraderTemplate(text));
  if (parsed.type === "multi") {
    const variables = Object.keys(parsed.graders);
    withParam([...at, "calculate_output"], () => parseFormula(parsed.calculate_output, variables));
  }
  return parsed;
}

/**
 * Checks that an item has every field that the templates of a grader name, as before a training job for each row of its data.
 *
 * @param grader - Grader that {@link checkGrader} returned.
 * @param item - Row of a dataset.
 * @param options - Path of the item in a request.
 * @throws ArgumentError `E_ARGUMENT` with the template, the path and the fields that exist.
 * @example
 * ```ts
 * import { checkGrader, checkItem } from "whetstone/graders";
 *
 * const input = "{{ sample.output_text }}";
 * const grader = checkGrader({ type: "string_check", name: "exact", operation: "eq", input, reference: "{{ item.answer }}" });
 * checkItem(grader, { answer: "42" });
 * ```
 */
export function checkItem(grader: Grader, item: unknown, { at = [] }: CheckOptions = {}): void {
  const values = { item, sample: gradedSample({ output_text: "" }) };
  for (const { text } of templatesOf(grader, [])) {
    for (const path of pathsOf(parseGraderTemplate(text), "item")) withParam(at, () => valueAt(path, values), "Invalid item");
  }
}

/**
 * Parses a grader without its templates and its formula.
 *
 * @throws UnsupportedError, ArgumentError as {@link checkGrader}.
 */
export function parseGrader(grader: unknown, at: Path = []): Grader {
  rejectUnsupported(grader, at);
  const type = isRecord(grader) ? grader["type"] : undefined;
  const schema = typeof type === "string" && Object.hasOwn(SCHEMAS, type) ? SCHEMAS[type as Grader["type"]] : null;
  if (schema === null) {
    const expected = `Expected a grader of the type ${Object.keys(SCHEMAS).join(", ")}`;
    throw new ArgumentError(`${expected}, got \`${shown(isRecord(grader) ? type : grader)}\``, { param: paramOf([...at, "type"]) });
  }
  const parsed = parseWith<typeof schema>(schema, grader, at, "the grader");
  if (!("data" in parsed)) throw new ArgumentError(`Invalid grader: ${parsed.mismatch.text}`, { param: parsed.mismatch.param });
  if (parsed.data.type === "multi") rejectFunctionNames(Object.keys(parsed.data.graders), at);
  return parsed.data;
}

/** Rejects variables of a multi grader that its formula would read as functions. */
function rejectFunctionNames(variables: readonly string[], at: Path): void {
  const name = variables.find((variable) => FUNCTION_NAMES.includes(variable));
  if (name === undefined) return;
  const message = `Invalid grader: expected variables that are not functions of formulas (${FUNCTION_NAMES.join(", ")}), got \`${name}\``;
  throw new ArgumentError(message, { param: paramOf([...at, "graders", name]) });
}

/** Content parts of model graders without a text. */
const UNSUPPORTED_PARTS: readonly unknown[] = ["input_image", "input_audio"];

/**
 * Rejects parts of OpenAI's format that are not supported, before the schema reports them as unknown.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` naming the part.
 */
function rejectUnsupported(grader: unknown, at: Path): void {
  if (!isRecord(grader)) return;
  const refuse = (path: Path, message: string): never => {
    throw new UnsupportedError(message, { param: paramOf([...at, ...path]) });
  };
  const { type, evaluation_metric: metric, pass_threshold: threshold, input, graders } = grader;
  if (type === "python") {
    refuse(["type"], "`python` graders are not supported: they would run code of the request. Use a reward function, or another grader");
  }
  if (type === "text_similarity" && metric === "cosine") {
    refuse(
      ["evaluation_metric"],
      "The metric `cosine` is not supported: it needs embeddings. Use `meteor` or `fuzzy_match`, or a model grader",
    );
  }
  if (threshold !== undefined) {
    refuse(["pass_threshold"], "`pass_threshold` is not supported: it belongs to evals, and has no effect on a score. Leave it out");
  }
  for (const { part, path } of contentPartsOf(input)) {
    if (UNSUPPORTED_PARTS.includes(part["type"]))
      refuse(path, `Grader input of the type \`${String(part["type"])}\` is not supported: only texts are`);
  }
  if (type !== "multi" || !isRecord(graders)) return;
  for (const { path, part } of partsOf(graders)) {
    const isMulti = isRecord(part) && part["type"] === "multi";
    if (isMulti) refuse(path, "A multi grader inside another one is not supported: combine their formulas");
    rejectUnsupported(part, [...at, ...path]);
  }
}

/** Returns the parts of a multi grader that was not parsed, with their paths in it. */
function partsOf(graders: Readonly<Record<string, unknown>>): { readonly part: unknown; readonly path: Path }[] {
  // OpenAI's format also permits one grader in place of an object of graders by variable.
  if (typeof graders["type"] === "string") return [{ part: graders, path: ["graders"] }];
  return Object.entries(graders).map(([variable, part]) => ({ part, path: ["graders", variable] }));
}

/** Returns the content parts of the messages of a model grader that was not parsed. */
function contentPartsOf(input: unknown): { readonly part: Readonly<Record<string, unknown>>; readonly path: Path }[] {
  const messages: readonly unknown[] = Array.isArray(input) ? input : [];
  return messages.flatMap((message, index) => {
    const content = isRecord(message) ? message["content"] : undefined;
    if (isRecord(content)) return [{ part: content, path: ["input", index, "content"] }];
    const parts: readonly unknown[] = Array.isArray(content) ? content : [];
    return parts.flatMap((part, position) => (isRecord(part) ? [{ part, path: ["input", index, "content", position] }] : []));
  });
}

/** Template in a grader, not parsed. */
interface TemplateText {
  /** Path of the template in the request. */
  readonly path: Path;
  readonly text: string;
}

/** Returns the templates of a grader, for a multi grader of all its parts. */
function templatesOf(grader: Grader, at: Path): TemplateText[] {
  if (grader.type !== "multi") return templatesOfSingle(grader, at);
  return Object.entries(grader.graders).flatMap(([variable, part]) => templatesOfSingle(part, [...at, "graders", variable]));
}

/** Returns the templates of a grader other than a multi grader. */
function templatesOfSingle(grader: SingleGrader, at: Path): TemplateText[] {
  if (grader.type === "score_model" || grader.type === "label_model") {
    return grader.input.flatMap(({ content }, index) => templatesOfContent(content, [...at, "input", index, "content"]));
  }
  return [
    { path: [...at, "input"], text: grader.input },
    { path: [...at, "reference"], text: grader.reference },
  ];
}

/** Returns the templates in the content of a message. */
function templatesOfContent(content: GraderMessage["content"], at: Path): TemplateText[] {
  if (typeof content === "string") return [{ path: at, text: content }];
  if (!Array.isArray(content)) return [{ path: [...at, "text"], text: content.text }];
  return content.flatMap((part, index) => templatesOfContent(part, [...at, index]));
}

/** Runs a check. @throws ArgumentError `E_ARGUMENT` with the path of the checked value, in place of the GraderError of the check */
function withParam(path: Path, check: () => unknown, subject = "Invalid grader"): void {
  try {
    check();
  } catch (error) {
    if (!(error instanceof GraderError)) throw error;
    const param = paramOf(path);
    throw new ArgumentError(`${subject}${param === null ? "" : ` at \`${param}\``}: ${error.message}`, { param, cause: error });
  }
}

/** Returns a path as the `param` of an error; null for the checked value itself. */
function paramOf(path: Path): string | null {
  return path.length === 0 ? null : path.join(".");
}
