/**
 * Normalization of schemas to the few forms that the compiler supports: one draft, no conditions, and `not` only for lists of values,
 * patterns and divisors.
 */
import { asList, invalid, toSchema, type Schema, type SchemaObject } from "./keywords.ts";
import { toLatestDraft, withoutConditions } from "./drafts.ts";
import { isAtom, negated } from "./negate.ts";
import { getOrInsert } from "../../../../base/util/values.ts";

/** Resolves a reference (`$ref`) at `path`: returns the schema that it refers to, and the position of that schema. */
export type Resolve = (reference: unknown, path: string) => { readonly schema: Schema; readonly path: string };

/** Normalizes one schema, without the schemas that it contains. */
export type Prepare = (schema: SchemaObject, path: string) => SchemaObject;

/** Records a keyword at `path` that the grammar does not fully enforce; `why` completes the error message of strict compilation. */
export type Relax = (keyword: string, path: string, why: string) => void;

/** @throws ArgumentError `E_ARGUMENT` for a `pattern` or `format` that is not a string. */
function checkTexts(schema: SchemaObject, path: string): void {
  for (const keyword of ["pattern", "format"]) {
    const value = schema[keyword];
    if (value !== undefined && typeof value !== "string") throw invalid(keyword, path, "a string", value);
  }
}

/** Schemas created by merging, with `pattern` and `format` possibly as lists. */
const mergedSchemas = new WeakSet<object>();

/** Marks a schema as the result of a merge, which is already normalized; returns the schema. */
export function asPrepared(schema: SchemaObject): SchemaObject {
  mergedSchemas.add(schema);
  return schema;
}

/** Returns the normalization function for the schemas of one document. */
export function preparer(resolve: Resolve, relax: Relax): Prepare {
  const cache = new WeakMap<object, SchemaObject>();
  const prepare: Prepare = (given, path) =>
    mergedSchemas.has(given) ? given : getOrInsert(cache, given, () => normalizedSchema(given, path));
  const normalizedSchema: Prepare = (given, path) => {
    checkTexts(given, path);
    const { not, ...others } = withoutConditions(toLatestDraft(given, path), path);
    if (not === undefined) return others;
    if (isAtom(not, others["type"])) return { ...others, not };
    const negation = negated(toSchema(not, "not", path), { resolve, prepare, path });
    if (negation !== null) return { ...others, allOf: [...asList(others["allOf"]), negation] };
    relax("not", path, "no schema says its opposite");
    return others;
  };
  return prepare;
}
