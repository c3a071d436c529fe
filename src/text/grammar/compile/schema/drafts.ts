/** Conversion of schemas of older drafts, and of OpenAPI, to the keywords of draft 2020-12. */
import { asList, invalid, isSchemaObject, toNames, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";
import { withParts } from "./parts.ts";

/** Keywords that apply further schemas to the value itself. */
const IN_PLACE = ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"];

/** Converts exclusive bounds of draft 4, which are flags next to the bounds. */
function withExclusiveBounds(schema: Record<string, unknown>): void {
  for (const [flag, bound] of [
    ["exclusiveMinimum", "minimum"],
    ["exclusiveMaximum", "maximum"],
  ] as const) {
    const isExclusive = schema[flag];
    if (typeof isExclusive !== "boolean") continue;
    delete schema[flag];
    if (!isExclusive || schema[bound] === undefined) continue;
    schema[flag] = schema[bound];
    delete schema[bound];
  }
}

/** Converts lists in `items`, which drafts up to 2019-09 use for the first items, to `prefixItems`. */
function withPrefixItems(schema: Record<string, unknown>): void {
  const { items, additionalItems } = schema;
  delete schema["additionalItems"];
  if (!Array.isArray(items)) return;
  delete schema["items"];
  schema["prefixItems"] = items;
  if (additionalItems !== undefined) schema["items"] = additionalItems;
}

/** Splits `dependencies`, which drafts up to 7 use for names and for schemas, into `dependentRequired` and `dependentSchemas`. */
function withDependents(schema: Record<string, unknown>, path: string): void {
  const { dependencies } = schema;
  delete schema["dependencies"];
  if (dependencies === undefined) return;
  if (!isSchemaObject(dependencies)) throw invalid("dependencies", path, "an object of schemas or names", dependencies);
  const entries = Object.entries(dependencies);
  const addTo = (keyword: string, added: typeof entries): void => {
    if (added.length > 0) schema[keyword] = { ...(schema[keyword] as object | undefined), ...Object.fromEntries(added) };
  };
  const nameLists = entries.filter(([, dependency]) => Array.isArray(dependency));
  const schemas = entries.filter(([, dependency]) => !Array.isArray(dependency));
  addTo("dependentRequired", nameLists);
  addTo("dependentSchemas", schemas);
}

/** Converts `nullable` of OpenAPI 3.0, a flag next to the type or next to an `allOf` that contains a reference. */
function withNull(schema: Record<string, unknown>): Record<string, unknown> {
  const { nullable, type, ...others } = schema;
  if (nullable !== true) return type === undefined ? others : { ...others, type };
  if (type !== undefined) return { ...others, type: [...new Set([...asList(type), "null"])] };
  // Definitions keep their position, so that references to them stay valid.
  const { $defs, definitions, ...asserted } = others;
  const existingDefinitions = Object.fromEntries(Object.entries({ $defs, definitions }).filter(([, value]) => value !== undefined));
  return { ...existingDefinitions, anyOf: [{ type: "null" }, asserted] };
}

/**
 * Replaces `unevaluated` keywords by `additionalProperties` and `items`, to which they are equivalent if no other schema applies to the
 * value itself.
 */
function withoutUnevaluated(schema: Record<string, unknown>): void {
  if (IN_PLACE.some((keyword) => keyword in schema)) return;
  for (const [unevaluated, additional] of [
    ["unevaluatedProperties", "additionalProperties"],
    ["unevaluatedItems", "items"],
  ] as const) {
    if (schema[unevaluated] === undefined || (unevaluated === "unevaluatedItems" && "contains" in schema)) continue;
    schema[additional] ??= schema[unevaluated];
    delete schema[unevaluated];
  }
}

/** Converts one schema to the keywords of draft 2020-12, without the schemas that it contains. */
export function toLatestDraft(given: SchemaObject, path: string): SchemaObject {
  // The following functions change this copy in place.
  const schema: Record<string, unknown> = { ...given };
  withExclusiveBounds(schema);
  withPrefixItems(schema);
  withDependents(schema, path);
  const result = "nullable" in schema ? withNull(schema) : schema;
  withoutUnevaluated(result);
  return result;
}

/** Converts a schema and all schemas that it contains to the keywords of draft 2020-12. */
export function toLatestDraftDeep(given: Schema, path = "#"): Schema {
  if (typeof given === "boolean") return given;
  return withParts(toLatestDraft(given, path), (part, ...keys) => toLatestDraftDeep(part, [path, ...keys].join("/")));
}

/**
 * Replaces `if` and dependencies between members by alternatives: `if` with `then` becomes "condition and `then`, or not the condition",
 * and a dependency becomes "the member is absent, or the dependent schema holds".
 */
export function withoutConditions(schema: SchemaObject, path: string): SchemaObject {
  const { if: condition, then, else: otherwise, dependentRequired, dependentSchemas, ...others } = schema;
  const unions: unknown[] = [];
  if (condition !== undefined && (then !== undefined || otherwise !== undefined))
    unions.push({ anyOf: [{ allOf: [condition, then ?? true] }, { allOf: [{ not: condition }, otherwise ?? true] }] });
  if (dependentRequired !== undefined) {
    if (!isSchemaObject(dependentRequired)) throw invalid("dependentRequired", path, "an object of names", dependentRequired);
    for (const [name, names] of Object.entries(dependentRequired))
      unions.push({ anyOf: [{ properties: { [name]: false } }, { required: toNames(names, "dependentRequired", path) }] });
  }
  for (const [name, dependent] of toSchemaMap(dependentSchemas, "dependentSchemas", path))
    unions.push({ anyOf: [{ properties: { [name]: false } }, dependent] });
  if (unions.length === 0) return others;
  return { ...others, allOf: [...asList(others["allOf"]), ...unions] };
}
