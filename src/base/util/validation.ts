/** Validation with zod schemas, and descriptions of mismatches with path, expected and received value. */

import type { z } from "zod";
import { ArgumentError } from "../errors.ts";
import { shortened } from "./shown.ts";

/** Problem that zod reports. */
type Issue = z.core.$ZodIssue;

/** Part of a zod definition needed to list the allowed keys of an object. */
interface Definition {
  readonly type: string;
  readonly innerType?: AnySchema | undefined;
  readonly element?: AnySchema | undefined;
  readonly shape?: Readonly<Record<string, AnySchema>> | undefined;
}
/** Zod schema, of which only the internal definition is read. */
interface AnySchema {
  readonly _zod: { readonly def: unknown };
}

/** Returns the definition of a schema without wrappers such as `optional`. */
function definitionOf(schema: AnySchema): Definition {
  let definition = schema._zod.def as Definition;
  while (definition.innerType !== undefined) definition = definition.innerType._zod.def as Definition;
  return definition;
}

/** Returns the keys of the object at `path` in `schema`; empty if a union or a record is on the path. */
function allowedKeys(schema: AnySchema, path: readonly PropertyKey[]): string[] {
  let definition = definitionOf(schema);
  for (const part of path) {
    const next = definition.type === "array" ? definition.element : definition.shape?.[String(part)];
    if (next === undefined) return [];
    definition = definitionOf(next);
  }
  return Object.keys(definition.shape ?? {});
}

/** Returns a received value as text, cut to 80 characters, with its type. */
function preview(value: unknown): string {
  if (value === undefined) return "nothing";
  const text = JSON.stringify(value) ?? typeof value;
  return `${shortened(text, 80)} (${typeName(value)})`;
}

/** Returns the type of a JSON value, as error messages name it. */
function typeName(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** Returns the most specific issue. The issue of a union itself is uninformative, so the alternative that matched deepest is reported. */
function deepestIssue(issue: Issue): Issue {
  if (issue.code !== "invalid_union" || issue.errors.length === 0) return issue;
  const depth = (alternative: readonly Issue[]) => Math.max(0, ...alternative.map(({ path }) => path.length));
  const alternatives = issue.errors.filter((alternative) => alternative.length > 0);
  const deepest = alternatives.reduce((a, b) => (depth(b) > depth(a) ? b : a), alternatives[0] ?? []);
  const [nested] = deepest;
  if (nested === undefined || depth(deepest) === 0) return issue;
  return deepestIssue({ ...nested, path: [...issue.path, ...nested.path] } as Issue);
}

/** Max unknown fields named in a message. */
const MAX_NAMED_KEYS = 10;

/** Describes an issue. `at` is the path of the validated value, and `root` the name of a value whose path is empty. */
function describe(issue: Issue, schema: AnySchema, at: readonly PropertyKey[], root: string): string {
  const path = [...at, ...issue.path];
  const where = path.length === 0 ? root : `\`${path.join(".")}\``;
  if (issue.code === "unrecognized_keys") {
    const allowed = allowedKeys(schema, issue.path);
    const allowedText = allowed.length > 0 ? `; allowed: ${allowed.join(", ")}` : "";
    const named = issue.keys.slice(0, MAX_NAMED_KEYS).map((key) => `\`${key.slice(0, 80)}\``);
    const more = issue.keys.length > MAX_NAMED_KEYS ? ` and ${issue.keys.length - MAX_NAMED_KEYS} more` : "";
    return `${where} has unknown ${issue.keys.length === 1 ? "field" : "fields"} ${named.join(", ")}${more}${allowedText}`;
  }
  const input = "input" in issue ? issue.input : undefined;
  return `${where}: ${issue.message}${issue.message.includes("received") ? "" : `, got ${preview(input)}`}`;
}

/** Max issues in a message. */
const MAX_ISSUES = 5;

/** Mismatches of a value and a schema. */
export interface Mismatch {
  /** Up to five issues, each with path, expected and received value. */
  readonly text: string;
  /** Path of the first issue; null for the value itself. */
  readonly param: string | null;
}

/**
 * Parses `value` with `schema`.
 *
 * @param at - Path of `value`, prefixed to every reported path. @default `value` itself
 * @param root - Name of a value whose path is empty. @default "the body"
 * @returns The schema's output, or the mismatches.
 */
export function parseWith<S extends z.ZodType>(
  schema: S,
  value: unknown,
  at: readonly PropertyKey[] = [],
  root = "the body",
): { readonly data: z.output<S> } | { readonly mismatch: Mismatch } {
  const result = schema.safeParse(value, { reportInput: true });
  if (result.success) return { data: result.data };
  const issues = result.error.issues.map(deepestIssue);
  const shown = issues.slice(0, MAX_ISSUES).map((issue) => describe(issue, schema as unknown as AnySchema, at, root));
  const more = issues.length > MAX_ISSUES ? ` (and ${issues.length - MAX_ISSUES} more)` : "";
  const path = [...at, ...pathOf(issues[0])];
  return { mismatch: { text: `${shown.join("; ")}${more}`, param: path.length > 0 ? path.join(".") : null } };
}

/** Returns the path of an issue; of unknown fields, the path of the first. */
function pathOf(issue: Issue | undefined): (PropertyKey | undefined)[] {
  if (issue === undefined) return [];
  return issue.code === "unrecognized_keys" ? [...issue.path, issue.keys[0]] : [...issue.path];
}

/** Returns path and message of the first issue of a failed validation, as a part of an error message. */
export function firstIssue({ issues: [issue] }: z.ZodError): string {
  return `at \`${issue?.path.join(".") || "(root)"}\`: ${issue?.message ?? "invalid"}`;
}

/**
 * Validates `value` and returns the output of `schema`.
 *
 * @param at - Path of `value` in the body, prefixed to every reported path. @default the body itself
 * @throws ArgumentError `E_ARGUMENT` with up to five issues, each with path, expected and received value; `param` is the path of the first.
 */
export function requireValid<S extends z.ZodType>(schema: S, value: unknown, at: readonly PropertyKey[] = []): z.output<S> {
  const result = parseWith(schema, value, at);
  if ("data" in result) return result.data;
  throw new ArgumentError(`Invalid request: ${result.mismatch.text}`, { param: result.mismatch.param });
}
