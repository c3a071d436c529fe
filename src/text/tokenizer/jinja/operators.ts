/** Operators of template expressions (arithmetic, comparison, `in`), iteration, items and slices, on values of all types. */

import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { arithmetic, type Arithmetic, toNumber } from "./numbers.ts";
import { formatPercent } from "./format.ts";
import { compareText, isBmpOnly, lengthOf, pointsOf, unitAt } from "./text.ts";
import { Dict, DictView, integerArgument, Markup, PyIterator, Range, Tuple, typeName, Undefined, type TemplateValue } from "./values.ts";

/** Max nesting of values that are compared. */
const MAX_NESTING = 900;

/** Applies an arithmetic operator, also to texts and lists (`+`, `*`, `%`). */
export function binary(meter: Meter, operator: Arithmetic, left: TemplateValue, right: TemplateValue): TemplateValue {
  // The most frequent case, without the checks below.
  if (typeof left === "number" && typeof right === "number" && Number.isInteger(left) && Number.isInteger(right)) {
    if (operator === "+" || operator === "-") {
      const result = operator === "+" ? left + right : left - right;
      if (Number.isSafeInteger(result)) return result;
    }
  }
  const joined = operator === "+" ? concatenation(meter, left, right) : undefined;
  if (joined !== undefined) return joined;
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

/** Returns the concatenation of two texts, lists or tuples; undefined for other values. */
function concatenation(meter: Meter, left: TemplateValue, right: TemplateValue): TemplateValue | undefined {
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
  return undefined;
}

/** Whether a value is a text, marked by the filter `safe` or not. */
function isText(value: TemplateValue): value is string | Markup {
  return typeof value === "string" || value instanceof Markup;
}

/** Returns the sum of two texts, at least one of them marked by the filter `safe`; an unmarked one is escaped as HTML. */
function addMarkup(meter: Meter, left: string | Markup, right: string | Markup): Markup {
  const [a, b] = [left, right].map((part) => (part instanceof Markup ? part.text : escapeHtml(part)));
  return new Markup(meter.chargeResult(`${a}${b}`));
}

/** HTML of the characters that have a meaning in HTML. */
const ENTITIES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;" };

/** Escapes a text as HTML. */
function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>'"]/g, (character) => ENTITIES[character] as string);
}

/** Returns `sequence * times`; undefined for other values than a text, list or tuple and an integer. */
function repeat(meter: Meter, sequence: TemplateValue, times: TemplateValue): TemplateValue | undefined {
  if (typeof times !== "boolean" && typeof times !== "bigint" && !(typeof times === "number" && Number.isInteger(times))) return undefined;
  const count = Math.max(0, integerArgument(times, "*"));
  if (typeof sequence === "string") {
    meter.checkLength(sequence.length * count);
    return meter.chargeResult(sequence.repeat(sequence === "" ? 0 : count));
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
  const leftNumber = toNumber(left);
  if (leftNumber !== undefined) {
    // Two bigints that are equal have been found above; their floats may be equal although they are not.
    if (typeof left === "bigint" && typeof right === "bigint") return false;
    return leftNumber === toNumber(right);
  }
  meter.charge(2);
  if (depth > MAX_NESTING) throw new TemplateFailure("RecursionError: values are nested too deeply to be compared");
  const equalItems = (leftItems: readonly TemplateValue[], rightItems: readonly TemplateValue[]): boolean => {
    if (leftItems.length !== rightItems.length) return false;
    meter.charge(leftItems.length);
    return leftItems.every((item, at) => equals(meter, item, rightItems[at] as TemplateValue, depth + 1));
  };
  if (Array.isArray(left)) return Array.isArray(right) && equalItems(left as readonly TemplateValue[], right as readonly TemplateValue[]);
  if (left instanceof Tuple) return right instanceof Tuple && equalItems(left.items, right.items);
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
    // Ranges are equal if their elements are.
    if (left.length !== right.length) return false;
    if (left.length === 0) return true;
    return left.start === right.start && (left.length === 1 || left.step === right.step);
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
  if (typeof left === "bigint" && typeof right === "bigint") return orderOf(left, right);
  const [leftNumber, rightNumber] = [toNumber(left), toNumber(right)];
  if (leftNumber !== undefined && rightNumber !== undefined) return orderOf(leftNumber, rightNumber);
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

/** Returns -1, 0 or 1; NaN if one of the numbers is NaN. */
function orderOf<T extends number | bigint>(left: T, right: T): number {
  if (left === right) return 0;
  if (left < right) return -1;
  return left > right ? 1 : Number.NaN;
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
  if (typeof value === "string" || Array.isArray(value)) return true;
  return [Tuple, Dict, DictView, Range, PyIterator, Undefined, Markup].some((type) => value instanceof type);
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
    const position = at < 0 ? at + value.length : at;
    return position >= 0 && position < value.length ? value.at(position) : undefined;
  }
  if (value instanceof Tuple) return value.items.at(at);
  return Array.isArray(value) ? (value as readonly TemplateValue[]).at(at) : undefined;
}

/** Returns `value[start:stop:step]`. */
export function slice(meter: Meter, value: TemplateValue, start: TemplateValue, stop: TemplateValue, step: TemplateValue): TemplateValue {
  if (value instanceof Undefined) return value.fail();
  const [from, to, increment] = [sliceBound(start), sliceBound(stop), sliceBound(step) ?? 1];
  const hasPositions = typeof value === "string" || Array.isArray(value) || value instanceof Tuple || value instanceof Range;
  const size = hasPositions ? valueLength(meter, value) : undefined;
  if (size === undefined) {
    if (value instanceof Markup) return unsupported("slicing text marked by the filter `safe`");
    return typeError(value instanceof Dict ? "unhashable type: 'slice'" : `'${typeName(value)}' object is not subscriptable`);
  }
  if (increment === 0) return valueError("slice step cannot be zero");
  const { first, end } = sliceEnds(size, from, to, increment > 0);
  const count = Math.max(0, Math.ceil((end - first) / increment));
  const sliced = <T>(elements: readonly T[]): T[] => Array.from({ length: count }, (_, at) => elements[first + at * increment] as T);
  if (typeof value === "string") {
    meter.chargeText(value.length);
    if (increment === 1) {
      if (count === 0) return "";
      return isBmpOnly(value) ? value.slice(first, end) : value.slice(unitAt(value, first), unitAt(value, end));
    }
    meter.chargeSplit(value.length);
    return sliced(pointsOf(value)).join("");
  }
  if (value instanceof Range) return new Range(value.start + first * value.step, value.start + end * value.step, value.step * increment);
  meter.charge(count);
  return value instanceof Tuple ? new Tuple(sliced(value.items)) : sliced(value as readonly TemplateValue[]);
}

/** Returns a part of a slice as a number; null for `None`. */
function sliceBound(part: TemplateValue): number | null {
  if (part === null) return null;
  if (typeof part === "boolean" || typeof part === "bigint" || (typeof part === "number" && Number.isInteger(part)))
    return integerArgument(part, "slice");
  return part instanceof Undefined ? part.fail() : typeError("slice indices must be integers or None or have an __index__ method");
}

/** Returns the positions at which a slice begins and before which it ends, in a value of some size. */
function sliceEnds(
  size: number,
  from: number | null,
  to: number | null,
  isForward: boolean,
): { readonly first: number; readonly end: number } {
  // As in Python, a negative step begins at the last element and may end at -1, before the first one.
  const [min, max] = isForward ? [0, size] : [-1, size - 1];
  const clamp = (position: number): number => Math.min(Math.max(position < 0 ? position + size : position, min), max);
  const [defaultFirst, defaultEnd] = isForward ? [min, max] : [max, min];
  return { first: from === null ? defaultFirst : clamp(from), end: to === null ? defaultEnd : clamp(to) };
}
