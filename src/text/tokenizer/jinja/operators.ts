/** Operators of template expressions (arithmetic, comparison, `in`), iteration, items and slices. */

import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { arithmetic, type Arithmetic, toNumber } from "./numbers.ts";
import { formatPercent } from "./format.ts";
import { compareText, isBmpOnly, lengthOf, pointsOf, unitAt } from "./text.ts";
import { Dict, DictView, index, Markup, PyIterator, Range, Tuple, typeName, Undefined, type TemplateValue } from "./values.ts";

/** Max nesting of values that are compared. */
const MAX_NESTING = 900;

/** Applies an arithmetic operator, also to texts and lists (`+`, `*`, `%`). */
export function binary(meter: Meter, operator: Arithmetic, left: TemplateValue, right: TemplateValue): TemplateValue {
  // The most frequent case.
  if (typeof left === "number" && typeof right === "number" && Number.isInteger(left) && Number.isInteger(right)) {
    if (operator === "+" || operator === "-") {
      const result = operator === "+" ? left + right : left - right;
      if (Number.isSafeInteger(result)) return result;
    }
  }
  if (operator === "+") {
    if (typeof left === "string" && typeof right === "string") {
      meter.checkLength(left.length + right.length);
      meter.chargeCopy(right.length);
      return left + right;
    }
    if (Array.isArray(left) && Array.isArray(right)) {
      meter.charge(left.length + right.length);
      return [...(left as readonly TemplateValue[]), ...(right as readonly TemplateValue[])];
    }
    if (left instanceof Tuple && right instanceof Tuple) {
      meter.charge(left.items.length + right.items.length);
      return new Tuple([...left.items, ...right.items]);
    }
  }
  if (left instanceof Undefined) return left.fail();
  if (right instanceof Undefined && !(operator === "%" && typeof left === "string")) return right.fail();
  if (operator === "+" && isText(left) && isText(right)) return addMarkup(meter, left, right);
  if (left instanceof Markup || right instanceof Markup) return unsupported(`\`${operator}\` with text marked by the filter \`safe\``);
  if (operator === "%" && typeof left === "string") return formatPercent(meter, left, right);
  if (operator === "*") {
    const repeated = repeat(meter, left, right) ?? repeat(meter, right, left);
    if (repeated !== undefined) return repeated;
  }
  const result = arithmetic(operator, left, right);
  if (result !== undefined) return result;
  if (operator === "+" && typeof left === "string") return typeError(`can only concatenate str (not "${typeName(right)}") to str`);
  if (left instanceof Dict && right instanceof Dict) return typeError(`unsupported operand type(s) for ${operator}: 'dict' and 'dict'`);
  const name = operator === "**" ? "** or pow()" : operator;
  return typeError(`unsupported operand type(s) for ${name}: '${typeName(left)}' and '${typeName(right)}'`);
}

function isText(value: TemplateValue): value is string | Markup {
  return typeof value === "string" || value instanceof Markup;
}

/** Returns the sum of two texts, at least one of them marked by the filter `safe`; an unmarked one is escaped as HTML. */
function addMarkup(meter: Meter, left: string | Markup, right: string | Markup): Markup {
  const [a, b] = [left, right].map((part) => (part instanceof Markup ? part.text : escapeHtml(part)));
  return new Markup(meter.made(`${a}${b}`));
}

const ENTITIES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;" };

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>'"]/g, (character) => ENTITIES[character] as string);
}

/** Returns `sequence * times`; undefined for other values than a text, list or tuple and an integer. */
function repeat(meter: Meter, sequence: TemplateValue, times: TemplateValue): TemplateValue | undefined {
  if (typeof times !== "boolean" && typeof times !== "bigint" && !(typeof times === "number" && Number.isInteger(times))) return undefined;
  const count = Math.max(0, index(times, "*"));
  if (typeof sequence === "string") {
    meter.checkLength(sequence.length * count);
    return meter.made(sequence.repeat(sequence === "" ? 0 : count));
  }
  const items = sequence instanceof Tuple ? sequence.items : Array.isArray(sequence) ? (sequence as readonly TemplateValue[]) : undefined;
  if (items === undefined) return undefined;
  meter.charge(items.length * count);
  const repeated = items.length === 0 ? [] : Array.from({ length: count }, () => items).flat(1);
  return sequence instanceof Tuple ? new Tuple(repeated) : repeated;
}

/** Returns `left == right`. */
export function equals(meter: Meter, left: TemplateValue, right: TemplateValue, depth = 0): boolean {
  if (typeof left === "string" && typeof right === "string") {
    if (left.length !== right.length) return false;
    meter.chargeCopy(left.length);
  }
  if (left === right) return true;
  if (typeof left === "string" || typeof right === "string") {
    if (left instanceof Markup) return left.text === right;
    return right instanceof Markup && right.text === left;
  }
  if (left === null || right === null) return false;
  const a = toNumber(left);
  if (a !== undefined) {
    const b = toNumber(right);
    if (typeof left === "bigint" && typeof right === "bigint") return left === right;
    return b !== undefined && a === b;
  }
  meter.charge(2);
  if (depth > MAX_NESTING) throw new TemplateFailure("RecursionError: values are nested too deeply to be compared");
  const same = (a: readonly TemplateValue[], b: readonly TemplateValue[]): boolean => {
    if (a.length !== b.length) return false;
    meter.charge(a.length);
    return a.every((item, at) => equals(meter, item, b[at] as TemplateValue, depth + 1));
  };
  if (Array.isArray(left)) return Array.isArray(right) && same(left as readonly TemplateValue[], right as readonly TemplateValue[]);
  if (left instanceof Tuple) return right instanceof Tuple && same(left.items, right.items);
  if (left instanceof Dict) {
    if (!(right instanceof Dict) || left.size !== right.size) return false;
    meter.charge(left.size);
    return left.entries().every(([key, value]) => {
      const other = right.get(key);
      return other !== undefined && equals(meter, value, other, depth + 1);
    });
  }
  if (left instanceof Undefined) return right instanceof Undefined;
  if (left instanceof Markup) return right instanceof Markup && left.text === right.text;
  if (left instanceof Range && right instanceof Range) {
    return (
      left.length === right.length && (left.length === 0 || (left.start === right.start && (left.length === 1 || left.step === right.step)))
    );
  }
  if (left instanceof DictView && right instanceof DictView) return unsupported("comparing views of dicts");
  return false;
}

/**
 * Compares two values: negative, zero or positive; NaN if one of them is NaN.
 *
 * @param operator - Operator for messages.
 * @throws TemplateFailure where Python raises `TypeError`.
 */
export function compareValues(meter: Meter, operator: string, left: TemplateValue, right: TemplateValue): number {
  if (typeof left === "string" && typeof right === "string") {
    meter.chargeText(Math.min(left.length, right.length));
    return compareText(left, right);
  }
  if (left instanceof Undefined) return left.fail();
  if (right instanceof Undefined) return right.fail();
  if (left instanceof Markup || right instanceof Markup) return unsupported("ordering text marked by the filter `safe`");
  if (typeof left === "bigint" && typeof right === "bigint") return left < right ? -1 : left > right ? 1 : 0;
  const a = toNumber(left);
  const b = toNumber(right);
  if (a !== undefined && b !== undefined) return a - b === 0 || a === b ? 0 : a < b ? -1 : a > b ? 1 : Number.NaN;
  const items = sequences(left, right);
  if (items === undefined)
    return typeError(`'${operator}' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`);
  const [first, second] = items;
  for (let at = 0; at < Math.min(first.length, second.length); at++) {
    meter.charge(1);
    if (!equals(meter, first[at] as TemplateValue, second[at] as TemplateValue))
      return compareValues(meter, operator, first[at] as TemplateValue, second[at] as TemplateValue);
  }
  return first.length - second.length;
}

/** Returns the elements of two lists or two tuples; undefined for other values. */
function sequences(left: TemplateValue, right: TemplateValue): readonly [readonly TemplateValue[], readonly TemplateValue[]] | undefined {
  if (Array.isArray(left) && Array.isArray(right)) return [left as readonly TemplateValue[], right as readonly TemplateValue[]];
  return left instanceof Tuple && right instanceof Tuple ? [left.items, right.items] : undefined;
}

/** Returns `item in container`. */
export function contains(meter: Meter, container: TemplateValue, item: TemplateValue): boolean {
  if (typeof container === "string" || container instanceof Markup) {
    const text = typeof container === "string" ? container : container.text;
    if (item instanceof Markup) return text.includes(item.text);
    if (typeof item !== "string") return typeError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    meter.chargeSearch(text.length, item.length);
    return text.includes(item);
  }
  if (container instanceof Dict) return !(item instanceof Undefined) && container.has(item);
  if (container instanceof Range && typeof item === "number" && Number.isInteger(item)) {
    const at = (item - container.start) / container.step;
    return Number.isInteger(at) && at >= 0 && at < container.length;
  }
  if (!isIterable(container)) return typeError(`argument of type '${typeName(container)}' is not iterable`);
  for (const element of iterateValue(meter, container)) if (equals(meter, element, item)) return true;
  return false;
}

/** Whether `iter(value)` works. */
export function isIterable(value: TemplateValue): boolean {
  return (
    typeof value === "string" ||
    Array.isArray(value) ||
    value instanceof Tuple ||
    value instanceof Dict ||
    value instanceof DictView ||
    value instanceof Range ||
    value instanceof PyIterator ||
    value instanceof Undefined ||
    value instanceof Markup
  );
}

/** Yields the elements of a value, and charges one step for each. */
export function* iterateValue(meter: Meter, value: TemplateValue): Generator<TemplateValue, void, undefined> {
  if (value instanceof PyIterator) {
    for (let next = value.iterator.next(); next.done !== true; next = value.iterator.next()) {
      meter.charge(1);
      yield next.value;
    }
    return;
  }
  for (const item of itemsOf(meter, value)) {
    meter.charge(1);
    yield item;
  }
}

/**
 * Returns the elements of a value without copying them where possible. Do not modify the result.
 *
 * @throws TemplateFailure if the value is not iterable.
 */
export function itemsOf(meter: Meter, value: TemplateValue): readonly TemplateValue[] {
  if (Array.isArray(value)) return value as readonly TemplateValue[];
  if (value instanceof Tuple || value instanceof DictView) return value.items;
  if (value instanceof Dict) {
    meter.charge(value.size);
    return value.keys();
  }
  if (value instanceof Undefined) return [];
  if (typeof value === "string" || value instanceof Markup) {
    const text = typeof value === "string" ? value : value.text;
    meter.chargeSplit(text.length);
    return pointsOf(text);
  }
  if (value instanceof Range) {
    meter.charge(value.length);
    return Array.from({ length: value.length }, (_, at) => value.at(at));
  }
  if (value instanceof PyIterator) return [...iterateValue(meter, value)];
  return typeError(`'${typeName(value)}' object is not iterable`);
}

/** Returns `list(value)`. */
export function toList(meter: Meter, value: TemplateValue): TemplateValue[] {
  const items = itemsOf(meter, value);
  meter.charge(items.length);
  return [...items];
}

/** Returns `len(value)`, or undefined if the value has none. */
export function valueLength(meter: Meter, value: TemplateValue): number | undefined {
  if (typeof value === "string") {
    meter.chargeText(value.length);
    return lengthOf(value);
  }
  if (Array.isArray(value)) return value.length;
  if (value instanceof Tuple || value instanceof DictView) return value.items.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof Range) return value.length;
  if (value instanceof Undefined) return 0;
  return value instanceof Markup ? valueLength(meter, value.text) : undefined;
}

/** Returns `value[at]` for an integer, or undefined where Python raises `IndexError`; also for a value without positions. */
export function elementAt(meter: Meter, value: TemplateValue, at: number): TemplateValue | undefined {
  if (typeof value === "string") {
    meter.chargeText(value.length);
    if (isBmpOnly(value)) {
      const point = value.charAt(at < 0 ? at + value.length : at);
      return point === "" ? undefined : point;
    }
    meter.chargeSplit(value.length);
    return Array.from(value).at(at);
  }
  if (value instanceof Range) {
    const place = at < 0 ? at + value.length : at;
    return place >= 0 && place < value.length ? value.at(place) : undefined;
  }
  if (value instanceof Tuple) return value.items.at(at);
  return Array.isArray(value) ? (value as readonly TemplateValue[]).at(at) : undefined;
}

/** Returns `value[start:stop:step]`. */
export function slice(meter: Meter, value: TemplateValue, start: TemplateValue, stop: TemplateValue, step: TemplateValue): TemplateValue {
  if (value instanceof Undefined) return value.fail();
  const bound = (part: TemplateValue): number | null => {
    if (part === null) return null;
    if (typeof part === "boolean" || typeof part === "bigint" || (typeof part === "number" && Number.isInteger(part)))
      return index(part, "slice");
    return part instanceof Undefined ? part.fail() : typeError("slice indices must be integers or None or have an __index__ method");
  };
  const [from, to, by] = [bound(start), bound(stop), bound(step) ?? 1];
  const size =
    typeof value === "string" || Array.isArray(value) || value instanceof Tuple || value instanceof Range
      ? valueLength(meter, value)
      : undefined;
  if (size === undefined) {
    if (value instanceof Markup) return unsupported("slicing text marked by the filter `safe`");
    return typeError(value instanceof Dict ? "unhashable type: 'slice'" : `'${typeName(value)}' object is not subscriptable`);
  }
  if (by === 0) return valueError("slice step cannot be zero");
  const [low, high] = by > 0 ? [0, size] : [-1, size - 1];
  const clamp = (part: number): number => Math.min(Math.max(part < 0 ? part + size : part, low), high);
  const first = from === null ? (by > 0 ? 0 : size - 1) : clamp(from);
  const last = to === null ? (by > 0 ? size : -1) : clamp(to);
  const count = Math.max(0, Math.ceil((last - first) / by));
  if (typeof value === "string") {
    meter.chargeText(value.length);
    if (by === 1)
      return count === 0 ? "" : isBmpOnly(value) ? value.slice(first, last) : value.slice(unitAt(value, first), unitAt(value, last));
    meter.chargeSplit(value.length);
    const points = pointsOf(value);
    return Array.from({ length: count }, (_, at) => points[first + at * by]).join("");
  }
  if (value instanceof Range) return new Range(value.start + first * value.step, value.start + last * value.step, value.step * by);
  meter.charge(count);
  const items = value instanceof Tuple ? value.items : (value as readonly TemplateValue[]);
  const part = Array.from({ length: count }, (_, at) => items[first + at * by] as TemplateValue);
  return value instanceof Tuple ? new Tuple(part) : part;
}
