/** Keywords of JSON Schema: reading and validating their values, and errors for them. */
import { ArgumentError, UnsupportedError } from "../../../../base/errors.ts";
import { shown } from "../../../../base/util/shown.ts";
import { getOrInsert, isRecord } from "../../../../base/util/values.ts";

/** Schema other than a boolean. */
export type SchemaObject = Readonly<Record<string, unknown>>;
/** Any schema. */
export type Schema = boolean | SchemaObject;

/** Maximum number of parts of a schema; a part that is referenced repeatedly counts once. */
export const MAX_SCHEMAS = 20_000;

/** Keywords that apply to values of one type only. */
export const KEYWORDS_OF = {
  string: ["minLength", "maxLength", "pattern", "format"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"],
  array: ["items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems"],
  object: [
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedProperties",
  ],
} as const;

/** Keywords that combine or refer to schemas. */
const COMBINING = ["$ref", "allOf", "anyOf", "oneOf", "enum", "const", "type", "not"];

/** All keywords with assertions; other names are annotations. */
const ASSERTIONS: ReadonlySet<string> = new Set([...COMBINING, ...Object.values(KEYWORDS_OF).flat()]);

/** Returns the error for a keyword that can be neither enforced nor validated. */
export function unenforceable(keyword: string, path: string, why = "it is not supported"): UnsupportedError {
  return new UnsupportedError(`The keyword \`${keyword}\` of the schema at ${path} cannot be enforced: ${why}. Leave it out`);
}

/** Returns the error for a keyword with an invalid value. */
export function invalid(keyword: string, path: string, expected: string, got: unknown): ArgumentError {
  return new ArgumentError(`Expected \`${keyword}\` of the schema at ${path} to be ${expected}, got ${shown(got)}`);
}

/** Whether a value may be a schema object. */
export function isSchemaObject(value: unknown): value is SchemaObject {
  return isRecord(value);
}

/** Returns a schema without some keywords. */
export function omit(schema: SchemaObject, ...keywords: readonly string[]): SchemaObject {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => !keywords.includes(keyword)));
}

/** Replacer for `JSON.stringify` that sorts the members of objects. */
const inOrder = (_: string, value: unknown): unknown =>
  isSchemaObject(value) ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))) : value;

/** Canonical texts of values in schemas: the values are immutable, and most are compared repeatedly. */
const canonicalTexts = new WeakMap<object, string>();

/** Returns the canonical text of a JSON value, independent of the order of members and the sign of 0. */
export function canonicalJson(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return getOrInsert(canonicalTexts, value, () => JSON.stringify(value, inOrder));
}

/** Whether two values are equal as JSON. */
export function isSameJson(a: unknown, b: unknown): boolean {
  return a === b || canonicalJson(a) === canonicalJson(b);
}

/**
 * Checks that a value is a schema.
 *
 * @throws ArgumentError `E_ARGUMENT` for any value other than a boolean or an object.
 */
export function toSchema(value: unknown, keyword: string, path: string): Schema {
  if (typeof value === "boolean" || isSchemaObject(value)) return value;
  throw invalid(keyword, path, "a schema, an object or a boolean", value);
}

/** Returns the schemas of a keyword with an array of schemas; empty if the keyword is absent. */
export function toSchemas(value: unknown, keyword: string, path: string): readonly Schema[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw invalid(keyword, path, "an array of schemas", value);
  return value.map((each, at) => toSchema(each, `${keyword}/${at}`, path));
}

/** Returns the schemas of a keyword with schemas by name; empty if the keyword is absent. */
export function toSchemaMap(value: unknown, keyword: string, path: string): ReadonlyMap<string, Schema> {
  if (value === undefined) return new Map();
  if (!isSchemaObject(value)) throw invalid(keyword, path, "an object of schemas", value);
  return new Map(Object.entries(value).map(([name, each]) => [name, toSchema(each, `${keyword}/${name}`, path)]));
}

/** Returns the value of a keyword with a non-negative integer; undefined if the keyword is absent. */
export function toCount(schema: SchemaObject, keyword: string, path: string): number | undefined {
  const value = schema[keyword];
  if (value === undefined) return undefined;
  if (typeof value !== "number" || !Number.isInteger(value) || value < 0) throw invalid(keyword, path, "a whole number from 0", value);
  return value;
}

/** Returns the value of a keyword with an array of strings, without duplicates; empty if the keyword is absent. */
export function toNames(value: unknown, keyword: string, path: string): readonly string[] {
  if (value === undefined) return [];
  if (!Array.isArray(value) || !value.every((each) => typeof each === "string")) throw invalid(keyword, path, "an array of strings", value);
  return [...new Set(value)];
}

/** Returns the keywords of a schema that have assertions, without annotations. */
export function assertionsOf(schema: SchemaObject): SchemaObject {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => ASSERTIONS.has(keyword)));
}

/** Returns the values that a schema lists with `const` or `enum`; null without these keywords. */
export function valuesOf(schema: SchemaObject): readonly unknown[] | null {
  const { enum: listed } = schema;
  if ("const" in schema) return [schema["const"]];
  return Array.isArray(listed) ? listed : null;
}

/** Returns a keyword's value as a list, empty if it is undefined. Merged schemas may have a list of values for one keyword. */
export function asList(value: unknown): readonly unknown[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}
