/**
 * Enumeration of schemas with finitely many values, and a check whether a value matches a schema. The check has three results: true, false,
 * and null if it would need keywords that only the validation of a finished text supports, such as `format`, `contains` or
 * `patternProperties`.
 */
import {
  asList,
  canonicalJson,
  isSchemaObject,
  toCount,
  toNames,
  toSchema,
  toSchemaMap,
  toSchemas,
  valuesOf,
  type Schema,
  type SchemaObject,
} from "./keywords.ts";
import { notsOf } from "./merge.ts";
import { isMultiple } from "./multiples.ts";

/** Functions for inspecting the schemas of a document; the schema compiler implements them. */
export interface SchemaLookup {
  /** Returns a schema with its references and `allOf` merged into it. */
  follow(schema: Schema, path: string): Schema;
  /** Whether a pattern is found in a text; null if unknown. */
  finds(pattern: string, text: string): boolean | null;
}

/** Maximum depth of alternatives that are searched. */
const MAX_DEPTH = 8;

/**
 * Returns the values of a schema, each once; null if they cannot be enumerated. The values of its alternatives, of `enum` and `const`, or of
 * its types are the candidates; those that the whole schema rejects are left out.
 *
 * @param path - Path of the schema in the document, for error messages.
 * @param depth - Number of alternatives that the schema is inside of.
 */
export function finiteValues(schema: Schema, lookup: SchemaLookup, path: string, depth = 0): readonly unknown[] | null {
  const followed = lookup.follow(schema, path);
  if (followed === false) return [];
  if (followed === true || depth > MAX_DEPTH) return null;
  const either = followed["anyOf"] ?? followed["oneOf"];
  const values =
    either === undefined
      ? (valuesOf(followed) ?? valuesOfTypes(followed))
      : valuesOfOptions(toSchemas(either, followed["anyOf"] === undefined ? "oneOf" : "anyOf", path), lookup, path, depth + 1);
  if (values === null) return null;
  const unique = [...new Map(values.map((value) => [canonicalJson(value), value])).values()];
  const fitting = unique.map((value) => fits(value, followed, lookup, path));
  return fitting.includes(null) ? null : unique.filter((_, at) => fitting[at]);
}

/** Returns the values of all alternatives, possibly with duplicates; null if an alternative cannot be enumerated. */
function valuesOfOptions(options: readonly Schema[], lookup: SchemaLookup, path: string, depth: number): readonly unknown[] | null {
  const lists = options.map((option) => finiteValues(option, lookup, path, depth));
  return lists.every((list) => list !== null) ? lists.flat() : null;
}

/** Returns all values of a schema that allows only booleans or null; null for other types. */
function valuesOfTypes(schema: SchemaObject): readonly unknown[] | null {
  const types = asList(schema["type"]);
  if (types.length === 0 || !types.every((type) => type === "boolean" || type === "null")) return null;
  return types.flatMap((type) => (type === "null" ? [null] : [true, false]));
}

/** Whether a value has a type. */
export function isOfType(value: unknown, type: unknown): boolean {
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "integer") return Number.isInteger(value);
  if (type === "object") return isSchemaObject(value);
  return typeof value === type;
}

/** True if all results are true, false if any is false, null otherwise. */
function conjunction(results: readonly (boolean | null)[]): boolean | null {
  if (results.includes(false)) return false;
  return results.includes(null) ? null : true;
}

// The following functions return whether a value matches the keywords for its type; null if unknown.

function fitsNumber(value: number, schema: SchemaObject): boolean | null {
  const meets = (keyword: string, holds: (bound: number) => boolean): boolean => {
    const bound = schema[keyword];
    return typeof bound !== "number" || holds(bound);
  };
  if (!meets("minimum", (bound) => value >= bound) || !meets("maximum", (bound) => value <= bound)) return false;
  if (!meets("exclusiveMinimum", (bound) => value > bound) || !meets("exclusiveMaximum", (bound) => value < bound)) return false;
  const divisor = schema["multipleOf"];
  if (divisor !== undefined) {
    if (typeof divisor !== "number" || divisor <= 0) return null;
    if (!isMultiple(value, divisor)) return false;
  }
  return schema["format"] === undefined ? true : null;
}

function fitsString(value: string, schema: SchemaObject, lookup: SchemaLookup, path: string): boolean | null {
  if (!isCountWithin([...value].length, schema, ["minLength", "maxLength"], path)) return false;
  const found = asList(schema["pattern"]).map((pattern) => lookup.finds(pattern as string, value));
  return conjunction([...found, schema["format"] === undefined ? true : null]);
}

function fitsArray(value: readonly unknown[], schema: SchemaObject, lookup: SchemaLookup, path: string): boolean | null {
  if (!isCountWithin(value.length, schema, ["minItems", "maxItems"], path)) return false;
  const prefixItems = toSchemas(schema["prefixItems"], "prefixItems", path);
  const items = toSchema(schema["items"] ?? true, "items", path);
  const isUnique = schema["uniqueItems"] !== true || new Set(value.map(canonicalJson)).size === value.length;
  return conjunction([
    isUnique,
    schema["contains"] === undefined ? true : null,
    ...value.map((item, at) => fits(item, prefixItems[at] ?? items, lookup, path)),
  ]);
}

function fitsObject(value: SchemaObject, schema: SchemaObject, lookup: SchemaLookup, path: string): boolean | null {
  if (toNames(schema["required"], "required", path).some((name) => !Object.hasOwn(value, name))) return false;
  if (!isCountWithin(Object.keys(value).length, schema, ["minProperties", "maxProperties"], path)) return false;
  const properties = toSchemaMap(schema["properties"], "properties", path);
  const additional = toSchema(schema["additionalProperties"] ?? true, "additionalProperties", path);
  // A member that is not in `properties` may be one of `patternProperties`, and then `additional` is not for it.
  const additionalOrUnknown = schema["patternProperties"] === undefined ? additional : null;
  return conjunction([
    schema["propertyNames"] === undefined ? true : null,
    ...Object.entries(value).map(([name, member]) => {
      const ofMember = properties.get(name) ?? additionalOrUnknown;
      return ofMember === null ? null : fits(member, ofMember, lookup, path);
    }),
  ]);
}

/** Whether a count is within the bounds of two keywords. */
function isCountWithin(count: number, schema: SchemaObject, [min, max]: readonly [min: string, max: string], path: string): boolean {
  return count >= (toCount(schema, min, path) ?? 0) && count <= (toCount(schema, max, path) ?? Infinity);
}

/** Whether a value matches a schema; null if the result depends on more than types, bounds, patterns and members. */
export function fits(value: unknown, schema: Schema, lookup: SchemaLookup, path: string): boolean | null {
  const followed = lookup.follow(schema, path);
  if (typeof followed === "boolean") return followed;
  const listed = valuesOf(followed);
  if (listed !== null && !listed.some((each) => canonicalJson(each) === canonicalJson(value))) return false;
  if (followed["type"] !== undefined && !asList(followed["type"]).some((type) => isOfType(value, type))) return false;
  // Whether the value is outside of each schema that `not` excludes.
  const isOutside = notsOf(followed["not"]).map((not) => {
    if (Array.isArray(not["enum"])) return !not["enum"].some((each) => canonicalJson(each) === canonicalJson(value));
    if (typeof not["multipleOf"] === "number") return typeof value !== "number" || !isMultiple(value, not["multipleOf"]);
    // The third kind is a pattern.
    if (typeof value !== "string") return true;
    const isFound = lookup.finds(String(not["pattern"]), value);
    return isFound === null ? null : !isFound;
  });
  const resultsOf = (keyword: "anyOf" | "oneOf") =>
    followed[keyword] === undefined ? null : toSchemas(followed[keyword], keyword, path).map((option) => fits(value, option, lookup, path));
  return conjunction([...isOutside, fitsAny(resultsOf("anyOf")), fitsOne(resultsOf("oneOf")), fitsKeywords(value, followed, lookup, path)]);
}

/** Whether a value matches at least one option, from the results of all options; true if `results` is null: the schema has no such keyword. */
function fitsAny(results: readonly (boolean | null)[] | null): boolean | null {
  if (results === null || results.includes(true)) return true;
  return results.includes(null) ? null : false;
}

/** Whether a value matches exactly one option, from the results of all options; true if `results` is null: the schema has no such keyword. */
function fitsOne(results: readonly (boolean | null)[] | null): boolean | null {
  if (results === null) return true;
  const matches = results.filter((result) => result === true).length;
  if (matches > 1) return false;
  return results.includes(null) ? null : matches === 1;
}

/** Whether a value matches the keywords for its type. */
function fitsKeywords(value: unknown, schema: SchemaObject, lookup: SchemaLookup, path: string): boolean | null {
  if (typeof value === "number") return fitsNumber(value, schema);
  if (typeof value === "string") return fitsString(value, schema, lookup, path);
  if (Array.isArray(value)) return fitsArray(value, schema, lookup, path);
  return isSchemaObject(value) ? fitsObject(value, schema, lookup, path) : true;
}
