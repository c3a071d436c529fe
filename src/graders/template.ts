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
  /** Keys from the namespace to the value. */
  readonly keys: readonly [Key, ...Key[]];
  /** Reference as written, with its braces. */
  readonly source: string;
}

/** Parsed template: literal texts and references, in order. */
export type GraderTemplate = readonly (string | TemplatePath)[];

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
const MEMBER = /\.([^\s.[\]{}"']+)|\[(\d+)\]|\["([^"]*)"\]|\['([^']*)'\]/guy;

/**
 * Parses a template.
 *
 * @param text - Text with references in double braces.
 * @throws GraderError `E_GRADER` with the flag `invalid_variable_error` for a reference that is not closed or not of the syntax, and for an
 *   unknown namespace or an unknown variable of `sample`.
 */
export function parseGraderTemplate(text: string): GraderTemplate {
  const parts: (string | TemplatePath)[] = [];
  let parsedLength = 0;
  for (let openIndex = text.indexOf("{{"); openIndex >= 0; openIndex = text.indexOf("{{", parsedLength)) {
    const closeIndex = text.indexOf("}}", openIndex);
    if (closeIndex < 0) throw templateError(`Expected \`{{\` to be closed by \`}}\`, got \`${text.slice(openIndex, openIndex + 40)}\``);
    parts.push(text.slice(parsedLength, openIndex));
    parsedLength = closeIndex + "}}".length;
    parts.push(parsePath(text.slice(openIndex, parsedLength)));
  }
  return [...parts, text.slice(parsedLength)].filter((part) => part !== "");
}

/** Parses a reference with its braces. */
function parsePath(source: string): TemplatePath {
  const [, namespace = "", members = ""] = /^\{\{\s*(\w*)(.*?)\s*\}\}$/su.exec(source) ?? [];
  if (namespace !== "item" && namespace !== "sample") {
    throw templateError(`Expected a template such as \`{{ item.answer }}\` or \`{{ sample.output_text }}\`, got \`${source}\``);
  }
  const keys = parseMembers(members);
  if (keys === null) {
    throw templateError(`Expected a path such as \`.name\`, \`[0]\` or \`["name"]\` after \`${namespace}\`, got \`${source}\``);
  }
  if (namespace === "sample") checkSampleVariable(keys[0], source);
  return { namespace, keys, source };
}

/** Parses the members after a namespace; null without any, and for text that is not a member. */
function parseMembers(text: string): readonly [Key, ...Key[]] | null {
  const matches = Array.from(text.matchAll(MEMBER));
  const isComplete = matches.reduce((length, [member]) => length + member.length, 0) === text.length;
  const [firstKey, ...otherKeys] = matches.map(([, name, index, doubleQuoted, singleQuoted]): Key => {
    return index === undefined ? (name ?? doubleQuoted ?? singleQuoted ?? "") : Number(index);
  });
  return firstKey === undefined || !isComplete ? null : [firstKey, ...otherKeys];
}

/** Checks that `sample` has a variable. @throws GraderError `E_GRADER` otherwise */
function checkSampleVariable(variable: Key, source: string): void {
  if (variable === "output_audio") throw templateError(`\`${source}\`: audio is not supported; grade the text of the sample`);
  if (SAMPLE_VARIABLES.includes(variable)) return;
  throw templateError(`\`${source}\`: \`sample\` has no variable \`${variable}\`; it has: ${SAMPLE_VARIABLES.join(", ")}`);
}

/**
 * Replaces the references of a template by their values: a text as it is, any other value as JSON.
 *
 * @throws GraderError `E_GRADER` with the flag `invalid_variable_error` for a path that the item does not have and a value without a JSON
 *   form, and `sample_parse_error` for a path that the sample does not have. The message has the reference, the path and the fields that
 *   exist.
 */
export function renderTemplate(template: GraderTemplate, values: TemplateValues): string {
  return template.map((part) => (typeof part === "string" ? part : textAt(part, values))).join("");
}

/** Returns the references to a namespace. */
export function pathsOf(template: GraderTemplate, namespace: TemplatePath["namespace"]): TemplatePath[] {
  return template.filter((part) => typeof part !== "string").filter((path) => path.namespace === namespace);
}

/** Returns the value of a reference. @throws GraderError `E_GRADER`, as {@link renderTemplate} */
export function valueAt({ namespace, keys, source }: TemplatePath, values: TemplateValues): unknown {
  let value: unknown = values[namespace];
  let path: string = namespace;
  for (const key of keys) {
    const missing = missingMember(value, key, path);
    if (missing !== null) throw new GraderError(MISSING_FLAGS[namespace], `\`${source}\`: ${missing}`);
    value = (value as Readonly<Record<Key, unknown>>)[key];
    path += typeof key === "number" ? `[${key}]` : `.${key}`;
  }
  return value;
}

/** Flags of the error for a value that does not exist. */
const MISSING_FLAGS = { item: "invalid_variable_error", sample: "sample_parse_error" } as const;

/** Describes that a value lacks a member; null if it has the member. Inherited members such as `constructor` do not count. */
function missingMember(value: unknown, key: Key, path: string): string | null {
  if (Array.isArray(value)) {
    const isIndex = typeof key === "number" || /^\d+$/u.test(key);
    return isIndex && Number(key) < value.length ? null : `\`${path}\` has no element \`${key}\`; it has ${value.length} elements`;
  }
  if (!isRecord(value)) return `\`${path}\` has no field \`${key}\`; it is ${value === null ? "null" : `a ${typeof value}`}`;
  if (Object.hasOwn(value, key) && value[key] !== undefined) return null;
  // Only `output_json` may be undefined: the names of variables were checked by `checkSampleVariable`.
  if (path === "sample") return "the text of the sample is not JSON";
  return `\`${path}\` has no field \`${key}\`; it has ${namesOf(value)}`;
}

/** Max number of fields that a message names. */
const MAX_NAMED_FIELDS = 20;

/** Lists the fields of a value for a message. */
function namesOf(value: Readonly<Record<string, unknown>>): string {
  const names = Object.keys(value).filter((name) => value[name] !== undefined);
  if (names.length === 0) return "none";
  const shown = names.slice(0, MAX_NAMED_FIELDS).map((name) => `\`${name}\``);
  return shown.join(", ") + (names.length > MAX_NAMED_FIELDS ? ` and ${names.length - MAX_NAMED_FIELDS} more` : "");
}

/** Returns the value of a reference as text. */
function textAt(path: TemplatePath, values: TemplateValues): string {
  const value = valueAt(path, values);
  if (typeof value === "string") return value;
  // `JSON.stringify` returns undefined for a function, which its type leaves out.
  const json = JSON.stringify(value) as string | undefined;
  if (json !== undefined) return json;
  throw templateError(`\`${path.source}\`: expected a value with a JSON form, got a ${typeof value}`);
}

/** Returns the error of an invalid template. */
function templateError(message: string): GraderError {
  return new GraderError("invalid_variable_error", message);
}
