/** Grammar of the arrays that a schema describes. */
import { EMPTY, MATCHES_NOTHING, choiceOf, optional, repeat, sequence, text, type Expression } from "../../expression.ts";
import { literal } from "../json-text.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { finiteValues } from "./finite.ts";
import { invalid, toCount, toSchema, toSchemas, type Schema, type SchemaObject } from "./keywords.ts";
import { getOrInsert } from "../../../../base/util/values.ts";

/** Bounds of the number of items. */
interface Counts {
  readonly min: number;
  readonly max: number;
}

/** Maximum number of values for which sets are enumerated: each set of values is a grammar state. */
const MAX_SET_VALUES = 10;

/** Maximum `minContains` that the grammar enforces. */
const MAX_MIN_CONTAINS = 64;

/** Returns the expression of items separated by commas, with each value at most once. */
function setOf(values: readonly unknown[], { min, max }: Counts, compiler: SchemaCompiler): Expression {
  const { whitespace } = compiler.parts;
  const items = values.map((value) => compiler.rule(() => sequence(literal(value, whitespace), whitespace)));
  const comma = sequence(text(","), whitespace);
  const afterSet = new Map<number, Expression>();
  /** Returns the expression of one or more items that may follow the items in `used`, a bit set with `count` bits. */
  const next = (used: number, count: number): Expression =>
    count >= max
      ? MATCHES_NOTHING
      : choiceOf(items.flatMap((item, at) => (used & (1 << at) ? [] : [sequence(item, after(used | (1 << at), count + 1))])));
  /** Returns the expression of the rest of the items, with the comma before them. */
  const after = (used: number, count: number): Expression =>
    getOrInsert(afterSet, used, () =>
      compiler.rule(() => {
        const following = sequence(comma, next(used, count));
        return count >= min ? optional(following) : following;
      }),
    );
  return min === 0 ? optional(next(0, 0)) : next(0, 0);
}

/**
 * Returns the bounds of `minItems` and `maxItems`. The maximum is at most the first position at which the schema `false` allows no item.
 */
function countsOf(schema: SchemaObject, path: string, first: readonly Schema[], rest: Schema): Counts {
  const min = toCount(schema, "minItems", path) ?? 0;
  const firstForbidden = first.findIndex((each) => each === false);
  const allowedLength = firstForbidden >= 0 ? firstForbidden : rest === false ? first.length : Infinity;
  return { min, max: Math.min(toCount(schema, "maxItems", path) ?? Infinity, allowedLength) };
}

/** Returns the expression of items, at least `count` of them matching `contains`; null if the array has other bounds or `prefixItems`. */
function containing(schema: SchemaObject, count: number, { min, max }: Counts, compiler: SchemaCompiler, path: string): Expression | null {
  const { items, prefixItems, contains, maxContains } = schema;
  if (prefixItems !== undefined || maxContains !== undefined || max !== Infinity || min > count) return null;
  const { whitespace } = compiler.parts;
  const comma = sequence(text(","), whitespace);
  const any = compiler.rule(() => sequence(compiler.compile(toSchema(items ?? true, "items", path), `${path}/items`), whitespace));
  const wanted = compiler.rule(() => {
    const both = [items ?? true, contains].map((each) => toSchema(each, "contains", path));
    return sequence(compiler.compile({ allOf: both }, `${path}/contains`), whitespace);
  });
  const upToWanted = sequence(repeat(sequence(any, comma)), wanted);
  return sequence(upToWanted, repeat(sequence(comma, upToWanted), count - 1, count - 1), repeat(sequence(comma, any)));
}

/** Returns the expression of the arrays that a schema describes; keywords that are not fully enforced are recorded with `relax`. */
export function arrayOf(schema: SchemaObject, compiler: SchemaCompiler, path: string): Expression {
  const { uniqueItems, contains } = schema;
  if (uniqueItems !== undefined && typeof uniqueItems !== "boolean") throw invalid("uniqueItems", path, "a boolean", uniqueItems);
  const first = toSchemas(schema["prefixItems"], "prefixItems", path);
  const rest = toSchema(schema["items"] ?? true, "items", path);
  const counts = countsOf(schema, path, first, rest);
  const { whitespace } = compiler.parts;
  const brackets = (items: Expression): Expression => sequence(text("["), whitespace, items, text("]"));
  let { min, max } = counts;

  if (uniqueItems === true && max > 1) {
    const values = first.length === 0 ? finiteValues(rest, compiler, path) : null;
    if (values !== null) max = Math.min(max, values.length);
    if (min > max) return MATCHES_NOTHING;
    if (values !== null && values.length <= MAX_SET_VALUES && contains === undefined)
      return brackets(setOf(values, { min, max }, compiler));
    compiler.relax("uniqueItems", path, "items are compared at the end");
  }
  if (contains !== undefined) {
    const minContained = toCount(schema, "minContains", path) ?? 1;
    toCount(schema, "maxContains", path);
    const items =
      minContained > 0 && minContained <= MAX_MIN_CONTAINS ? containing(schema, minContained, { min, max }, compiler, path) : null;
    if (items !== null) return brackets(items);
    if (minContained > 0 || schema["maxContains"] !== undefined)
      compiler.relax("contains", path, "other bounds of the items stand beside it");
    min = Math.max(min, Math.min(minContained, max));
  }
  return min > max ? MATCHES_NOTHING : brackets(itemsOf(first, rest, { min, max }, compiler, path));
}

/** Returns the expression of `min` to `max` items: the first ones match the schemas `places`, by position, later ones match `others`. */
function itemsOf(places: readonly Schema[], others: Schema, { min, max }: Counts, compiler: SchemaCompiler, path: string): Expression {
  const { whitespace } = compiler.parts;
  const item = (schema: Schema, at: string) => compiler.rule(() => sequence(compiler.compile(schema, `${path}/${at}`), whitespace));
  const first = places.slice(0, max === Infinity ? undefined : max).map((place, at) => item(place, `prefixItems/${at}`));
  const rest = item(others, "items");
  const comma = sequence(text(","), whitespace);
  /** Returns `body` as often as items may follow `from` items. */
  const many = (body: Expression, from: number): Expression =>
    max < from ? EMPTY : repeat(body, Math.max(0, min - from), max === Infinity ? null : max - from);

  // From the last position to the first: the items that may follow once the earlier positions are filled.
  let after = many(sequence(comma, rest), Math.max(first.length, 1));
  for (const [at, place] of [...first.entries()].slice(1).reverse()) {
    const one = sequence(comma, place, after);
    // Each position has its own rule, since hundreds of positions would otherwise be nested as deeply.
    after = at >= max ? EMPTY : compiler.rule(() => (at < min ? one : optional(one)));
  }
  const inner = sequence(first[0] ?? rest, after);
  return max === 0 ? EMPTY : min > 0 ? inner : optional(inner);
}
