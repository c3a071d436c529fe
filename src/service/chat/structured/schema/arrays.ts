/** Arrays that a schema describes. */
import { EMPTY, NOTHING, optional, repeat, sequence, text, type Expression } from "../../../../engine/grammar/expression.ts";
import { invalid, refuse, toCount, toSchema, toSchemas, type Schema, type SchemaObject } from "./keywords.ts";
import type { SchemaCompiler } from "./compiler.ts";

/** Schemas by place, and that of all further places. */
function placesOf(schema: SchemaObject, path: string): { readonly first: readonly Schema[]; readonly rest: Schema } {
  const { items, additionalItems } = schema;
  // Before 2020 the places were listed in `items`.
  if (Array.isArray(items))
    return { first: toSchemas(items, "items", path), rest: toSchema(additionalItems ?? true, "additionalItems", path) };
  return { first: toSchemas(schema["prefixItems"], "prefixItems", path), rest: toSchema(items ?? true, "items", path) };
}

/** An array. */
export function arrayOf(schema: SchemaObject, compiler: SchemaCompiler, path: string): Expression {
  const { uniqueItems } = schema;
  if (uniqueItems !== undefined && typeof uniqueItems !== "boolean") throw invalid("uniqueItems", path, "a boolean", uniqueItems);
  const places = placesOf(schema, path);
  const min = toCount(schema, "minItems", path) ?? 0;
  const max = Math.min(toCount(schema, "maxItems", path) ?? Infinity, places.rest === false ? places.first.length : Infinity);
  if (uniqueItems === true && max > 1) throw refuse("uniqueItems", path);
  const { whitespace } = compiler.parts;
  const item = (place: Schema, at: string) => compiler.rule(() => sequence(compiler.compile(place, `${path}/${at}`), whitespace));
  const first = places.first.map((place, at) => item(place, `prefixItems/${at}`));
  const rest = item(places.rest, "items");
  const comma = sequence(text(","), whitespace);
  const many = (body: Expression, from: number): Expression =>
    max < from ? EMPTY : repeat(body, Math.max(0, min - from), max === Infinity ? null : max - from);

  // From the last place to the first: what may follow once so many items are there.
  let after = many(sequence(comma, rest), Math.max(first.length, 1));
  for (let at = first.length - 1; at > 0; at--) {
    const one = sequence(comma, first[at]!, after);
    // A rule for each: hundreds of places would be nested as deep.
    after = at >= max ? EMPTY : compiler.rule(() => (at < min ? one : optional(one)));
  }
  const inner = sequence(first[0] ?? rest, after);
  const items = max === 0 ? EMPTY : min > 0 ? inner : optional(inner);
  return min > max ? NOTHING : sequence(text("["), whitespace, items, text("]"));
}
