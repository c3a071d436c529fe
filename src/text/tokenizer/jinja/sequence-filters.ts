/** Filters over sequences and mappings. As in Jinja, filters that return a generator do their work when a template reads its elements. */

import { pathGetter } from "./attributes.ts";
import { TemplateFailure, typeError, unsupported } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { arithmetic } from "./numbers.ts";
import { binary, compareValues, equals, itemsOf, iterateValue, valueLength, toList } from "./operators.ts";
import { toText } from "./print.ts";
import { builtin, type Filter } from "./signature.ts";
import { applyTest } from "./tests.ts";
import { pointsOf } from "./text.ts";
import {
  Dict,
  Group,
  integerArgument,
  type Keywords,
  keyOf,
  Markup,
  orElse,
  PyIterator,
  isTruthy,
  Tuple,
  typeName,
  Undefined,
  type TemplateValue,
} from "./values.ts";

/** Returns a text in lower case, and other values unchanged. */
function lowerText(meter: Meter, value: TemplateValue): TemplateValue {
  if (typeof value !== "string") return value;
  meter.chargeText(value.length);
  return value.toLowerCase();
}

/**
 * Returns the function that computes the key of an element, for `sort`, `unique`, `min`, `max` and `groupby`.
 *
 * @param attribute - Path of the key in the element; undefined = the element itself.
 * @param caseSensitive - Unless true, keys that are texts are compared in lower case.
 * @param otherwise - Key of an element without the attribute.
 */
function keyGetter(
  meter: Meter,
  attribute: TemplateValue | undefined,
  caseSensitive: TemplateValue | undefined,
  otherwise?: TemplateValue,
): (item: TemplateValue) => TemplateValue {
  const get = pathGetter(meter, attribute, otherwise);
  return caseSensitive !== undefined && isTruthy(caseSensitive) ? get : (item) => lowerText(meter, get(item));
}

/** Sorts values stably by keys; fails for keys that Python cannot order. */
function sortBy(
  meter: Meter,
  items: readonly TemplateValue[],
  key: (item: TemplateValue) => TemplateValue,
  isReverse: boolean,
): TemplateValue[] {
  meter.charge(items.length * 4);
  const keyed = items.map((item) => ({ item, key: key(item) }));
  const order = (a: TemplateValue, b: TemplateValue): number => {
    meter.charge(1);
    const result = compareValues(meter, "<", a, b);
    return Number.isNaN(result) ? unsupported("sorting values with NaN") : result;
  };
  // A reversed sort of Python keeps equal elements in their order.
  keyed.sort(isReverse ? (a, b) => order(b.key, a.key) : (a, b) => order(a.key, b.key));
  return keyed.map(({ item }) => item);
}

/** Whether an optional boolean argument is given and true. */
const isSet = (value: TemplateValue | undefined): boolean => value !== undefined && isTruthy(value);

/** Returns an iterator of Python. The generator runs only when the template reads its elements. */
function generator(make: () => Generator<TemplateValue, void, undefined>): PyIterator {
  return new PyIterator(make());
}

/** `map`: applies a filter, or looks up an attribute, of each element. */
const map: Filter = (meter, value, args, keywords, apply) =>
  generator(function* () {
    if (!isTruthy(value)) return;
    let change: (item: TemplateValue) => TemplateValue;
    if (args.length === 0 && keywords.has("attribute")) {
      const unexpected = [...keywords.keys()].find((key) => key !== "attribute" && key !== "default");
      if (unexpected !== undefined) throw new TemplateFailure(`Unexpected keyword argument '${unexpected}'`);
      change = pathGetter(meter, keywords.get("attribute"), keywords.get("default"));
    } else {
      const [name, ...rest] = args;
      if (name === undefined) throw new TemplateFailure("map requires a filter argument");
      if (typeof name !== "string") throw new TemplateFailure("map requires the name of a filter");
      change = (item) => apply(meter, name, item, rest, keywords);
    }
    for (const item of iterateValue(meter, value)) yield change(item);
  });

/** Returns the filter `select` or `reject`, or with `byAttribute` `selectattr` or `rejectattr`. */
function selector(effect: "select" | "reject", { byAttribute }: { readonly byAttribute: boolean }): Filter {
  const isWanted = effect === "select";
  return (meter, value, args, keywords: Keywords) =>
    generator(function* () {
      if (!isTruthy(value)) return;
      if (byAttribute && args.length === 0) throw new TemplateFailure("Missing parameter for attribute name");
      const get = byAttribute ? pathGetter(meter, args[0]) : (item: TemplateValue): TemplateValue => item;
      const [name, ...rest] = byAttribute ? args.slice(1) : args;
      if (name !== undefined && typeof name !== "string") throw new TemplateFailure("Expected the name of a test");
      const holds = (item: TemplateValue): boolean => (name === undefined ? isTruthy(item) : applyTest(meter, name, item, rest, keywords));
      for (const item of iterateValue(meter, value)) if (holds(get(item)) === isWanted) yield item;
    });
}

/** Returns the filter `max` or `min`. */
function extreme(wanted: "max" | "min"): Filter {
  const isBetter = (meter: Meter, key: TemplateValue, bestKey: TemplateValue): boolean =>
    wanted === "max" ? compareValues(meter, ">", key, bestKey) > 0 : compareValues(meter, "<", key, bestKey) < 0;
  return builtin("case_sensitive=, attribute=", (meter, value, [caseSensitive, attribute]) => {
    const key = keyGetter(meter, attribute, caseSensitive);
    let best: { readonly item: TemplateValue; readonly key: TemplateValue } | undefined;
    for (const item of iterateValue(meter, value)) {
      const candidate = { item, key: key(item) };
      if (best === undefined || isBetter(meter, candidate.key, best.key)) best = candidate;
    }
    return orElse(best?.item, new Undefined("No aggregated item, sequence was empty."));
  });
}

/** `groupby`: sorts the elements by a key, and groups those with equal keys. */
const groupBy: Filter = builtin("attribute, default=, case_sensitive=", (meter, value, [attribute, otherwise, caseSensitive]) => {
  const keyOfItem = keyGetter(meter, attribute, caseSensitive, otherwise);
  const attributeOf = pathGetter(meter, attribute, otherwise);
  const groups: { key: TemplateValue; items: TemplateValue[] }[] = [];
  for (const item of sortBy(meter, itemsOf(meter, value), keyOfItem, false)) {
    const key = keyOfItem(item);
    const lastGroup = groups.at(-1);
    if (lastGroup !== undefined && equals(meter, lastGroup.key, key)) lastGroup.items.push(item);
    else groups.push({ key, items: [item] });
  }
  // The grouping key may be in lower case; the group then has the attribute of its first element as name.
  const nameOf = ({ key, items }: (typeof groups)[number]): TemplateValue =>
    isSet(caseSensitive) ? key : attributeOf(items[0] as TemplateValue);
  return groups.map((group) => new Group([nameOf(group), group.items]));
});

const length: Filter = builtin(
  "",
  (meter, value) => valueLength(meter, value) ?? typeError(`object of type '${typeName(value)}' has no len()`),
);
/** `default`: replaces an undefined value, and with `boolean` also a false one. */
const defaultValue: Filter = builtin("default_value=, boolean=", (_, value, [otherwise, boolean]) =>
  value instanceof Undefined || (isSet(boolean) && !isTruthy(value)) ? orElse(otherwise, "") : value,
);

/** Filters of this file by name. */
export const SEQUENCE_FILTERS: Readonly<Record<string, Filter>> = {
  batch: builtin("linecount, fill_with=", (meter, value, [linecount, fill]) =>
    generator(function* () {
      let row: TemplateValue[] = [];
      for (const item of iterateValue(meter, value)) {
        if (equals(meter, row.length, linecount as TemplateValue)) {
          yield row;
          row = [];
        }
        row.push(item);
      }
      if (row.length === 0) return;
      const missing = integerArgument(linecount as TemplateValue, "linecount") - row.length;
      if (fill !== undefined && fill !== null && missing > 0) {
        meter.charge(missing);
        row.push(...Array.from({ length: missing }, () => fill));
      }
      yield row;
    }),
  ),
  count: length,
  d: defaultValue,
  default: defaultValue,
  dictsort: builtin("case_sensitive=, by=, reverse=", (meter, value, [caseSensitive, by, reverse]) => {
    if (by !== undefined && by !== "key" && by !== "value") throw new TemplateFailure('You can only sort by either "key" or "value"');
    if (value instanceof Undefined) return value.fail();
    if (!(value instanceof Dict)) return typeError(`dictsort expects a mapping, got ${typeName(value)}`);
    const keyIndex = by === "value" ? 1 : 0;
    const items = value.entries().map((entry) => new Tuple(entry));
    const key = (item: TemplateValue): TemplateValue => (item as Tuple).items[keyIndex] as TemplateValue;
    return sortBy(meter, items, isSet(caseSensitive) ? key : (item) => lowerText(meter, key(item)), isSet(reverse));
  }),
  first: builtin("", (meter, value) => {
    for (const item of iterateValue(meter, value)) return item;
    return new Undefined("No first item, sequence was empty.");
  }),
  groupby: groupBy,
  items: builtin("", (meter, value) => {
    if (value instanceof Undefined) return new PyIterator([].values());
    if (!(value instanceof Dict)) {
      // As in Jinja, fails only when the template reads an element.
      return generator(function* () {
        yield typeError("Can only get item pairs from a mapping.");
      });
    }
    meter.charge(value.size);
    const pairs = value.entries().map((entry) => new Tuple(entry));
    return new PyIterator(pairs.values());
  }),
  join: builtin("d=, attribute=", (meter, value, [separator, attribute]) => {
    const get = pathGetter(meter, attribute);
    const between = separator === undefined ? "" : toText(meter, separator);
    const parts: string[] = [];
    let total = 0;
    for (const item of iterateValue(meter, value)) {
      const text = toText(meter, get(item));
      total += text.length + between.length;
      meter.checkLength(total - between.length);
      parts.push(text);
    }
    return meter.chargeResult(parts.join(between));
  }),
  last: builtin("", (meter, value) => {
    if (value instanceof PyIterator) return typeError(`'${value.typeName}' object is not reversible`);
    return orElse(itemsOf(meter, value).at(-1), new Undefined("No last item, sequence was empty."));
  }),
  length,
  list: builtin("", (meter, value) => toList(meter, value)),
  map,
  max: extreme("max"),
  min: extreme("min"),
  reject: selector("reject", { byAttribute: false }),
  rejectattr: selector("reject", { byAttribute: true }),
  reverse: builtin("", (meter, value) => {
    if (typeof value === "string") {
      meter.chargeSplit(value.length);
      return pointsOf(value).toReversed().join("");
    }
    const items = toList(meter, value).reverse();
    // Python's `reversed` fails for iterators and marked text; Jinja then makes a list.
    return value instanceof PyIterator || value instanceof Markup ? items : new PyIterator(items.values(), "list_reverseiterator");
  }),
  select: selector("select", { byAttribute: false }),
  selectattr: selector("select", { byAttribute: true }),
  slice: builtin("slices, fill_with=", (meter, value, [slices, fill]) =>
    generator(function* () {
      const items = toList(meter, value);
      const count = integerArgument(slices as TemplateValue, "slices");
      // Both operators fail for 0 slices, as in Python.
      const minSize = arithmetic("//", items.length, count) as number;
      const longerSlices = arithmetic("%", items.length, count) as number;
      let start = 0;
      for (let at = 0; at < count; at++) {
        meter.charge(1);
        const isLonger = at < longerSlices;
        const end = start + minSize + (isLonger ? 1 : 0);
        const row = items.slice(start, end);
        if (fill !== undefined && fill !== null && !isLonger) row.push(fill);
        yield row;
        start = end;
      }
    }),
  ),
  sort: builtin("reverse=, case_sensitive=, attribute=", (meter, value, [reverse, caseSensitive, attribute]) => {
    const paths = typeof attribute === "string" ? attribute.split(",") : [attribute];
    const keysOf = paths.map((path) => keyGetter(meter, path, caseSensitive));
    // Lists of keys are compared key by key.
    return sortBy(meter, itemsOf(meter, value), (item) => keysOf.map((keyOfItem) => keyOfItem(item)), isSet(reverse));
  }),
  sum: builtin("attribute=, start=", (meter, value, [attribute, start]) => {
    if (typeof start === "string") return typeError("sum() can't sum strings [use ''.join(seq) instead]");
    const get = pathGetter(meter, attribute);
    let total: TemplateValue = orElse(start, 0);
    for (const item of iterateValue(meter, value)) total = binary(meter, "+", total, get(item));
    return total;
  }),
  unique: builtin("case_sensitive=, attribute=", (meter, value, [caseSensitive, attribute]) =>
    generator(function* () {
      const key = keyGetter(meter, attribute, caseSensitive);
      const seen = new Set<TemplateValue>();
      for (const item of iterateValue(meter, value)) {
        const stored = keyOf(key(item));
        if (seen.has(stored)) continue;
        seen.add(stored);
        yield item;
      }
    }),
  ),
};
