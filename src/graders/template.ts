/** Templates of graders: texts with `{{ item.… }}` and `{{ sample.… }}`. */
import { isRecord } from "../base/util/values.ts";
import { GraderError } from "./errors.ts";
import type { GradedSample } from "./sample.ts";

/** Key of an object, or index of an array. */
type Key = string | number;

/** Reference to a value. */
export interface TemplatePath {
  /** Object that has the value. */
  readonly namespace: "item" | "sample";
  /** Keys from the namespace to the value; at least one. */
  readonly keys: readonly Key[];
  /** Reference as written, with its braces. */
  readonly source: string;
}

/** Parsed template: literal texts and references, in order. */
export type Template = readonly (string | TemplatePath)[];

/** Values that the references of a template name. */
export interface TemplateValues {
  /** Row of the dataset. */
  readonly item: unknown;
  /** Output of the graded model. */
  readonly sample: GradedSample;
}

/** Variables of the namespace `sample`. */
const SAMPLE_VARIABLES: readonly Key[] = ["output_text", "output_json", "output_tools", "choices"];

/** Member of a path: `.name`, `[0]`, `["name"]` or `['name']`. */
const MEMBER = /\.([^\s.[\]{}"']+)|\[(\d+)\]|\["([^"]*)"\]|\['([^']*)'\]/uy;

/**
 * Parses a template.
 *
 * @param text - Text with references in double braces.
 * @throws GraderError `E_GRADER` with the flag `invalid_variable_error` for a reference that is not closed or not of the syntax, and for an
 *   unknown namespace or an unknown variable of `sample`.
 */
export function parseTemplate(text: string): Template {
  const parts: (string | TemplatePath)[] = [];
  let end = 0;
  for (let start = text.indexOf("{{"); start >= 0; start = text.indexOf("{{", end)) {
    const close = text.indexOf("}}", start);
    if (close < 0) throw invalid(`Expected \`{{\` to be closed by \`}}\`, got \`${text.slice(start, start + 40)}\``);
    parts.push(text.slice(end, start));
    end = close + "}}".length;
    parts.push(parsePath(text.slice(start, end)));
  }
  return [...parts, text.slice(end)].filter((part) => part !== "");
}

function parsePath(source: string): TemplatePath {
  const [, namespace = "", rest = ""] = /^\{\{\s*(\w*)(.*?)\s*\}\}$/su.exec(source) ?? [];
  if (namespace !== "item" && namespace !== "sample") {
    throw invalid(`Expected a template such as \`{{ item.answer }}\` or \`{{ sample.output_text }}\`, got \`${source}\``);
  }
  const keys: Key[] = [];
  const member = new RegExp(MEMBER);
  while (member.lastIndex < rest.length) {
    const found = member.exec(rest);
    if (found === null) break;
    const [, name, index, quoted, single] = found;
    keys.push(index === undefined ? (name ?? quoted ?? single ?? "") : Number(index));
  }
  if (keys.length === 0 || member.lastIndex < rest.length) {
    throw invalid(`Expected a path such as \`.name\`, \`[0]\` or \`["name"]\` after \`${namespace}\`, got \`${source}\``);
  }
  if (namespace === "sample") checkVariable(keys[0] ?? "", source);
  return { namespace, keys, source };
}

function checkVariable(variable: Key, source: string): void {
  if (variable === "output_audio") throw invalid(`\`${source}\`: audio is not supported; grade the text of the sample`);
  if (SAMPLE_VARIABLES.includes(variable)) return;
  throw invalid(`\`${source}\`: \`sample\` has no variable \`${variable}\`; it has: ${SAMPLE_VARIABLES.join(", ")}`);
}

/**
 * Replaces the references of a template by their values: a text as it is, any other value as JSON.
 *
 * @throws GraderError `E_GRADER` with the flag `invalid_variable_error` for a path that the item does not have, and `sample_parse_error` for
 *   one that the sample does not have. The message has the reference, the path and the fields that exist.
 */
export function renderTemplate(template: Template, values: TemplateValues): string {
  return template.map((part) => (typeof part === "string" ? part : textOf(valueAt(part, values)))).join("");
}

/** Returns the references to a namespace. */
export function pathsOf(template: Template, namespace: TemplatePath["namespace"]): TemplatePath[] {
  return template.filter((part) => typeof part !== "string").filter((path) => path.namespace === namespace);
}

/** Returns the value of a reference. @throws GraderError `E_GRADER`, as {@link renderTemplate} */
export function valueAt({ namespace, keys, source }: TemplatePath, values: TemplateValues): unknown {
  const flag = namespace === "item" ? "invalid_variable_error" : "sample_parse_error";
  let value: unknown = namespace === "item" ? values.item : values.sample;
  let path: string = namespace;
  for (const key of keys) {
    const missing = problemOf(value, key, path, values.sample);
    if (missing !== null) throw new GraderError(flag, `\`${source}\`: ${missing}`);
    value = (value as Readonly<Record<Key, unknown>>)[key];
    path += typeof key === "number" ? `[${key}]` : `.${key}`;
  }
  return value;
}

/** Describes why a value lacks a member; null if it has it. Inherited members such as `constructor` do not count. */
function problemOf(value: unknown, key: Key, path: string, sample: GradedSample): string | null {
  if (path === "sample" && key === "output_json" && sample.output_json === undefined) return "the text of the sample is not JSON";
  if (Array.isArray(value)) {
    const isIndex = typeof key === "number" || /^\d+$/u.test(key);
    return isIndex && Number(key) < value.length ? null : `\`${path}\` has no element \`${key}\`; it has ${value.length} elements`;
  }
  if (!isRecord(value)) return `\`${path}\` has no field \`${key}\`; it is ${value === null ? "null" : `a ${typeof value}`}`;
  if (Object.hasOwn(value, key) && value[key] !== undefined) return null;
  return `\`${path}\` has no field \`${key}\`; it has ${namesOf(value)}`;
}

/** Max number of fields that a message names. */
const MAX_NAMED = 20;

function namesOf(value: Readonly<Record<string, unknown>>): string {
  const names = Object.keys(value).filter((name) => value[name] !== undefined);
  if (names.length === 0) return "none";
  const shown = names.slice(0, MAX_NAMED).map((name) => `\`${name}\``);
  return shown.join(", ") + (names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : "");
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function invalid(message: string): GraderError {
  return new GraderError("invalid_variable_error", message);
}
