/** The keywords of JSON Schema, and errors about them. */
import { ArgumentError, UnsupportedError } from "../../../../errors.ts";
import { shown } from "../../coercion.ts";

/** A schema that is no boolean. */
export type SchemaObject = Readonly<Record<string, unknown>>;
/** Anything that may stand where a schema is expected. */
export type Schema = boolean | SchemaObject;

/** Keywords of one type of values; they say nothing about values of other types. */
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

/** Keywords that combine schemas, or stand for one. */
const COMBINING = ["$ref", "allOf", "anyOf", "oneOf", "enum", "const", "type", "not"];

/** Every keyword that asserts something. Other names are annotations. */
const ASSERTIONS: ReadonlySet<string> = new Set([...COMBINING, ...Object.values(KEYWORDS_OF).flat()]);

/** References that depend on the schema they are reached from; neither the grammar nor the validation follows them. */
const REFUSED = ["$dynamicRef", "$recursiveRef"];

/** The error for a keyword that can be neither enforced nor validated. */
export function refuse(keyword: string, path: string, why = "it is not supported"): UnsupportedError {
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
 * The keywords of a schema that assert something.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` naming a keyword that can be neither enforced nor validated.
 */
export function assertionsOf(schema: SchemaObject, path: string): SchemaObject {
  for (const keyword of REFUSED) if (keyword in schema) throw refuse(keyword, path);
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => ASSERTIONS.has(keyword)));
}

/** The values that a schema lists; null if it lists none. */
export function valuesOf(schema: SchemaObject): readonly unknown[] | null {
  const { enum: listed } = schema;
  if ("const" in schema) return [schema["const"]];
  return Array.isArray(listed) ? listed : null;
}

/** A value that may be one or a list: keywords of schemas that must hold together. */
export function asList(value: unknown): readonly unknown[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}
