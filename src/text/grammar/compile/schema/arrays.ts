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
  const rulesOfSets = new Map<number, Expression>();
  /** Returns the expression of one or more items that may follow the items in `used`, a bit set with `count` bits. */
  const moreItems = (used: number, count: number): Expression => {
    if (count >= max) return MATCHES_NOTHING;
    const options = items.map((item, at) => ({ item, bit: 1 << at })).filter(({ bit }) => (used & bit) === 0);
    return choiceOf(options.map(({ item, bit }) => sequence(item, afterItems(used | bit, count + 1))));
  };
  /** Returns the expression of all items that may follow the items in `used`, with the comma before them. */
  const afterItems = (used: number, count: number): Expression =>
    getOrInsert(rulesOfSets, used, () =>
      compiler.rule(() => {
        const following = sequence(comma, moreItems(used, count));
        return count >= min ? optional(following) : following;
      }),
    );
  return min === 0 ? optional(moreItems(0, 0)) : moreItems(0, 0);
}

/**
 * Returns the bounds of `minItems` and `maxItems`. The maximum is at most the first position at which the schema `false` allows no item.
 */
function countsOf(schema: SchemaObject, path: string, prefixItems: readonly Schema[], laterItems: Schema): Counts {
  const min = toCount(schema, "minItems", path) ?? 0;
  const firstForbidden = [...prefixItems, laterItems].indexOf(false);
  const allowedLength = firstForbidden < 0 ? Infinity : firstForbidden;
  return { min, max: Math.min(toCount(schema, "maxItems", path) ?? Infinity, allowedLength) };
}

/** Returns the expression of items, at least `count` of them matching `contains`; null if the array has other bounds or `prefixItems`. */
function containing(schema: SchemaObject, count: number, { min, max }: Counts, compiler: SchemaCompiler, path: string): Expression | null {
  const { items, prefixItems, contains, maxContains } = schema;
  if (prefixItems !== undefined || maxContains !== undefined || max !== Infinity || min > count) return null;
  const { whitespace } = compiler.parts;
  const comma = sequence(text(","), whitespace);
  const anyItem = compiler.rule(() => sequence(compiler.compile(toSchema(items ?? true, "items", path), `${path}/items`), whitespace));
  const matchingItem = compiler.rule(() => {
    const both = [items ?? true, contains].map((each) => toSchema(each, "contains", path));
    return sequence(compiler.compile({ allOf: both }, `${path}/contains`), whitespace);
  });
  const upToMatching = sequence(repeat(sequence(anyItem, comma)), matchingItem);
  return sequence(upToMatching, repeat(sequence(comma, upToMatching), count - 1, count - 1), repeat(sequence(comma, anyItem)));
}

/** Returns the expression of the arrays that a schema describes; keywords that are not fully enforced are recorded with `relax`. */
export function arrayOf(schema: SchemaObject, compiler: SchemaCompiler, path: string): Expression {
  const { uniqueItems, contains } = schema;
  if (uniqueItems !== undefined && typeof uniqueItems !== "boolean") throw invalid("uniqueItems", path, "a boolean", uniqueItems);
  const prefixItems = toSchemas(schema["prefixItems"], "prefixItems", path);
  const laterItems = toSchema(schema["items"] ?? true, "items", path);
  const counts = countsOf(schema, path, prefixItems, laterItems);
  const { whitespace } = compiler.parts;
  const brackets = (items: Expression): Expression => sequence(text("["), whitespace, items, text("]"));
  let { min, max } = counts;

  if (uniqueItems === true && max > 1) {
    const values = prefixItems.length === 0 ? finiteValues(laterItems, compiler, path) : null;
    if (values !== null) max = Math.min(max, values.length);
    if (min > max) return MATCHES_NOTHING;
    if (values !== null && values.length <= MAX_SET_VALUES && contains === undefined)
      return brackets(setOf(values, { min, max }, compiler));
    compiler.relax("uniqueItems", path, "items are compared at the end");
  }
  if (contains !== undefined) {
    const minContained = toCount(schema, "minContains", path) ?? 1;
    // Only validated here: the grammar does not enforce it.
    toCount(schema, "maxContains", path);
    const canCount = minContained > 0 && minContained <= MAX_MIN_CONTAINS;
    const items = canCount ? containing(schema, minContained, { min, max }, compiler, path) : null;
    if (items !== null) return brackets(items);
    if (minContained > 0 || schema["maxContains"] !== undefined)
      compiler.relax("contains", path, "other bounds of the items stand beside it");
    min = Math.max(min, Math.min(minContained, max));
  }
  return min > max ? MATCHES_NOTHING : brackets(itemsOf(prefixItems, laterItems, { min, max }, compiler, path));
}

/** Returns the expression of `min` to `max` items: the first ones match the schemas `prefixItems`, by position, the others `laterItems`. */
function itemsOf(prefixItems: readonly Schema[], laterItems: Schema, counts: Counts, compiler: SchemaCompiler, path: string): Expression {
  const { min, max } = counts;
  const { whitespace } = compiler.parts;
  const item = (schema: Schema, place: string) => compiler.rule(() => sequence(compiler.compile(schema, `${path}/${place}`), whitespace));
  const prefix = prefixItems.slice(0, max === Infinity ? undefined : max).map((schema, at) => item(schema, `prefixItems/${at}`));
  const laterItem = item(laterItems, "items");
  const comma = sequence(text(","), whitespace);

  // From the last position to the first: the items that may follow once the earlier positions are filled.
  const filled = Math.max(prefix.length, 1);
  const maxMore = max === Infinity ? null : max - filled;
  let following = max < filled ? EMPTY : repeat(sequence(comma, laterItem), Math.max(0, min - filled), maxMore);
  for (const [at, prefixItem] of [...prefix.entries()].slice(1).reverse()) {
    const fromHere = sequence(comma, prefixItem, following);
    // Each position has its own rule, since hundreds of positions would otherwise be nested as deeply.
    following = at >= max ? EMPTY : compiler.rule(() => (at < min ? fromHere : optional(fromHere)));
  }
  if (max === 0) return EMPTY;
  const all = sequence(prefix[0] ?? laterItem, following);
  return min > 0 ? all : optional(all);
}
