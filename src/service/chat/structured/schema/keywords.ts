/** The keywords of JSON Schema, and how one that is not carried out is refused. */
import { ArgumentError, UnsupportedError } from "../../../../errors.ts";
import { shown } from "../../coercion.ts";

/** A schema that is no boolean. */
export type SchemaObject = Readonly<Record<string, unknown>>;
/** Anything that may stand where a schema is expected. */
export type Schema = boolean | SchemaObject;

/** Keywords of one type of values; they say nothing about values of other types. */
export const KEYWORDS_OF = {
  string: ["minLength", "maxLength", "pattern", "format"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
  array: ["items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"],
  object: ["properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties"],
} as const;

/** Keywords that combine schemas, or stand for one. */
const COMBINING = ["$ref", "allOf", "anyOf", "oneOf", "enum", "const", "type"];

/** Every keyword that is carried out where it can be; of those that are no assertions, none. */
const CARRIED_OUT: ReadonlySet<string> = new Set([...COMBINING, ...Object.values(KEYWORDS_OF).flat()]);

/** Assertions that are not carried out at all, with the value under which they assert nothing. */
const REFUSED: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ...["not", "if", "then", "else", "contains", "minContains", "maxContains", "$dynamicRef", "$recursiveRef"].map(
    (name) => [name, undefined] as const,
  ),
  ...["dependentRequired", "dependentSchemas", "dependencies"].map((name) => [name, {}] as const),
  ...["unevaluatedProperties", "unevaluatedItems"].map((name) => [name, true] as const),
]);

/** A keyword that cannot be carried out exactly. */
export function refuse(keyword: string, path: string, why = "it is not carried out"): UnsupportedError {
  return new UnsupportedError(`The keyword \`${keyword}\` of the schema at ${path} cannot be enforced: ${why}. Leave it out`);
}

/** A keyword whose value is none. */
export function invalid(keyword: string, path: string, expected: string, got: unknown): ArgumentError {
  return new ArgumentError(`Expected \`${keyword}\` of the schema at ${path} to be ${expected}, got ${shown(got)}`);
}

/** Whether a value may be a schema. */
export function isSchemaObject(value: unknown): value is SchemaObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const inOrder = (_: string, value: unknown): unknown =>
  isSchemaObject(value) ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))) : value;

/** Texts of values that schemas hold, which nobody changes: what is compared once is mostly compared again. */
const texts = new WeakMap<object, string>();

/** One text for all spellings of a value of JSON, in which the order of members says nothing and 0 has no sign. */
export function canonicalJson(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const text = texts.get(value) ?? JSON.stringify(value, inOrder);
  texts.set(value, text);
  return text;
}

/** Whether two values are the same one of JSON. */
export function isSameJson(a: unknown, b: unknown): boolean {
  return a === b || canonicalJson(a) === canonicalJson(b);
}

/**
 * A value as a schema.
 *
 * @throws ArgumentError `E_ARGUMENT` for anything but a boolean or an object.
 */
export function toSchema(value: unknown, keyword: string, path: string): Schema {
  if (typeof value === "boolean" || isSchemaObject(value)) return value;
  throw invalid(keyword, path, "a schema, an object or a boolean", value);
}

/** An array of schemas; empty where the keyword is absent. */
export function toSchemas(value: unknown, keyword: string, path: string): readonly Schema[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw invalid(keyword, path, "an array of schemas", value);
  return value.map((each, at) => toSchema(each, `${keyword}/${at}`, path));
}

/** Schemas by name; none where the keyword is absent. */
export function toSchemaMap(value: unknown, keyword: string, path: string): ReadonlyMap<string, Schema> {
  if (value === undefined) return new Map();
  if (!isSchemaObject(value)) throw invalid(keyword, path, "an object of schemas", value);
  return new Map(Object.entries(value).map(([name, each]) => [name, toSchema(each, `${keyword}/${name}`, path)]));
}

/** A count from 0; undefined where the keyword is absent. */
export function toCount(schema: SchemaObject, keyword: string, path: string): number | undefined {
  const value = schema[keyword];
  if (value === undefined) return undefined;
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0) throw invalid(keyword, path, "a whole number from 0", value);
  return value;
}

/** Strings, each once; none where the keyword is absent. */
export function toNames(value: unknown, keyword: string, path: string): readonly string[] {
  if (value === undefined) return [];
  if (!Array.isArray(value) || !value.every((each) => typeof each === "string")) throw invalid(keyword, path, "an array of strings", value);
  return [...new Set(value)];
}

/**
 * Checks that a schema has no assertion that nothing here carries out. Names that JSON Schema does not know are annotations.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` naming the keyword.
 */
export function checkKeywords(schema: SchemaObject, path: string): void {
  for (const [keyword, value] of Object.entries(schema)) {
    if (REFUSED.has(keyword) && !isSameJson(value, REFUSED.get(keyword))) throw refuse(keyword, path);
  }
}

/** The part of a schema that asserts something. */
export function assertionsOf(schema: SchemaObject): SchemaObject {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => CARRIED_OUT.has(keyword) || REFUSED.has(keyword)));
}
