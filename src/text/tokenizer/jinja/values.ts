/**
 * Python values as the template engine represents them.
 *
 * | Python | here |
 * |---|---|
 * | `None`, `bool`, `str` | null, boolean, string |
 * | `int` | number (a safe integer) or bigint |
 * | `float` | number that is not an integer, or {@link Float} |
 * | `list` | array |
 * | everything else | a class derived from {@link PyObject} |
 */

import { TemplateFailure, typeError, unsupported } from "./errors.ts";
import type { Meter } from "./meter.ts";

/** Value of a template expression. */
export type TemplateValue = null | boolean | number | bigint | string | readonly TemplateValue[] | PyObject;

/** Value that has no counterpart among the values of JavaScript. */
export abstract class PyObject {
  /** Name of the Python type. */
  abstract readonly typeName: string;

  /** Returns `repr(value)`; absent if Python prints the address of the object. */
  print?(): string;
}

/** `float` with an integer value (`1.0`); other floats are plain numbers. */
export class Float extends PyObject {
  readonly typeName = "float";
  readonly value: number;
  constructor(value: number) {
    super();
    this.value = value;
  }
}

/** Returns a `float`. */
export function float(value: number): TemplateValue {
  return Number.isInteger(value) ? new Float(value) : value;
}

/** Returns an `int`: a number if it is safe, else a bigint. */
export function int(value: bigint): number | bigint {
  return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

/** Value of a name, key or attribute that does not exist. */
export class Undefined extends PyObject {
  readonly typeName = "Undefined";
  readonly #hint: string;

  /** @param hint - Message of the failure that using the value raises. */
  constructor(hint: string) {
    super();
    this.#hint = hint;
  }

  /** @throws TemplateFailure always. */
  fail(): never {
    throw new TemplateFailure(this.#hint);
  }
}

/** `tuple`. */
export class Tuple extends PyObject {
  readonly typeName: string = "tuple";
  readonly items: readonly TemplateValue[];
  constructor(items: readonly TemplateValue[]) {
    super();
    this.items = items;
  }
}

/** Element of `groupby`: a tuple with the attributes `grouper` and `list`. */
export class Group extends Tuple {
  override readonly typeName = "_GroupTuple";
}

/** Key of a `dict` as it is stored; {@link keyOf} converts a value to it. */
type StoredKey = string | number | bigint | null;

/** `dict`, in insertion order. */
export class Dict extends PyObject {
  readonly typeName = "dict";
  readonly #values: Map<StoredKey, TemplateValue>;
  /** Keys that are stored under another one, because they are equal in Python: `True` under 1, `2.0` under 2. */
  #originals: Map<StoredKey, TemplateValue> | undefined;

  constructor(entries: Iterable<readonly [string, TemplateValue]> = []) {
    super();
    this.#values = new Map<StoredKey, TemplateValue>(entries);
  }

  get size(): number {
    return this.#values.size;
  }

  get(key: TemplateValue): TemplateValue | undefined {
    return this.#values.get(keyOf(key));
  }

  has(key: TemplateValue): boolean {
    return this.#values.has(keyOf(key));
  }

  set(key: TemplateValue, value: TemplateValue): void {
    const stored = keyOf(key);
    if (stored !== key && !this.#values.has(stored)) {
      this.#originals ??= new Map();
      this.#originals.set(stored, key);
    }
    this.#values.set(stored, value);
  }

  keys(): TemplateValue[] {
    const originals = this.#originals;
    return originals === undefined ? [...this.#values.keys()] : Array.from(this.#values.keys(), (key) => orElse(originals.get(key), key));
  }

  values(): TemplateValue[] {
    return [...this.#values.values()];
  }

  entries(): [TemplateValue, TemplateValue][] {
    const values = this.values();
    return this.keys().map((key, index) => [key, values[index] as TemplateValue]);
  }
}

/** Key under which equal values of Python are equal in JavaScript. */
export function keyOf(value: TemplateValue): StoredKey {
  if (value === null || typeof value === "string" || typeof value === "number" || typeof value === "bigint") return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (value instanceof Float) return Number.isSafeInteger(value.value) ? value.value + 0 : int(BigInt(value.value));
  if (Array.isArray(value) || value instanceof Dict) return typeError(`unhashable type: '${typeName(value)}'`);
  return unsupported(`a key of type \`${typeName(value)}\``);
}

/** View of a dict: `keys()`, `values()` or `items()`. Templates cannot change a dict, so the items are computed once. */
export class DictView extends PyObject {
  readonly typeName: string;
  readonly items: readonly TemplateValue[];
  constructor(kind: "keys" | "values" | "items", dict: Dict) {
    super();
    this.typeName = `dict_${kind}`;
    if (kind === "items") this.items = dict.entries().map((entry) => new Tuple(entry));
    else this.items = kind === "keys" ? dict.keys() : dict.values();
  }
}

/** `range`. */
export class Range extends PyObject {
  readonly typeName = "range";
  readonly start: number;
  readonly stop: number;
  readonly step: number;
  readonly length: number;
  constructor(start: number, stop: number, step: number) {
    super();
    this.start = start;
    this.stop = stop;
    this.step = step;
    this.length = Math.max(0, Math.ceil((stop - start) / step));
  }

  at(index: number): number {
    return this.start + index * this.step;
  }
}

/** Iterator of Python: it yields each element once, and is true even if it is empty. */
export class PyIterator extends PyObject {
  readonly typeName: string;
  readonly iterator: Iterator<TemplateValue>;
  constructor(iterator: Iterator<TemplateValue>, name = "generator") {
    super();
    this.iterator = iterator;
    this.typeName = name;
  }
}

/** `namespace(...)`: the only value a template can change. */
export class Namespace extends PyObject {
  readonly typeName = "Namespace";
  readonly attributes: Dict;
  constructor(attributes: Dict) {
    super();
    this.attributes = attributes;
    for (const name of attributes.keys()) Namespace.#check(name);
  }

  set(name: string, value: TemplateValue): void {
    Namespace.#check(name);
    this.attributes.set(name, value);
  }

  static #check(name: TemplateValue): void {
    if (typeof name === "string" && name.startsWith("_")) {
      throw new TemplateFailure(`Chat templates cannot store underscore-prefixed attributes on a namespace, but got '${name}'.`);
    }
  }
}

/** Text that the filter `safe` marks. Text appended to it is escaped as HTML. Its methods and most filters of it are unsupported. */
export class Markup extends PyObject {
  readonly typeName = "Markup";
  readonly text: string;
  constructor(text: string) {
    super();
    this.text = text;
  }
}

/** Returns `value`, or `otherwise` if `value` is undefined. `None` is a value, so that `??` cannot be used. */
export function orElse<T extends TemplateValue>(value: TemplateValue | undefined, otherwise: T): TemplateValue | T {
  return value === undefined ? otherwise : value;
}

/** Keyword arguments of a call, in order. */
export type Keywords = ReadonlyMap<string, TemplateValue>;

/** Empty keyword arguments. */
export const NO_KEYWORDS: Keywords = new Map();

/** Value that can be called. */
export class Callable extends PyObject {
  readonly typeName: string;
  /** Attributes that templates can read. */
  readonly attributes: ReadonlyMap<string, TemplateValue> = NO_KEYWORDS;
  readonly call: (meter: Meter, args: readonly TemplateValue[], keywords: Keywords) => TemplateValue;
  constructor(call: (meter: Meter, args: readonly TemplateValue[], keywords: Keywords) => TemplateValue, name = "function") {
    super();
    this.call = call;
    this.typeName = name;
  }
}

/** Whether a value is an `int`; `bool` is not counted. */
export function isInt(value: TemplateValue): value is number | bigint {
  return typeof value === "number" ? Number.isInteger(value) : typeof value === "bigint";
}

/** Whether a value is a `float`. */
export function isFloat(value: TemplateValue): value is number | Float {
  return typeof value === "number" ? !Number.isInteger(value) : value instanceof Float;
}

/** Returns the name of the Python type of a value. */
export function typeName(value: TemplateValue): string {
  if (value === null) return "NoneType";
  switch (typeof value) {
    case "boolean":
      return "bool";
    case "string":
      return "str";
    case "bigint":
      return "int";
    case "number":
      return Number.isInteger(value) ? "int" : "float";
    default:
      return value instanceof PyObject ? value.typeName : "list";
  }
}

/** Whether a value is true in a condition: `bool(value)`. */
export function isTruthy(value: TemplateValue): boolean {
  switch (typeof value) {
    case "boolean":
      return value;
    case "string":
      return value.length > 0;
    case "number":
      return value !== 0;
    case "bigint":
      // Only integers beyond 2**53 are bigints.
      return true;
    default:
      if (value === null || value instanceof Undefined) return false;
      if (Array.isArray(value)) return value.length > 0;
      if (value instanceof Dict) return value.size > 0;
      if (value instanceof Tuple || value instanceof DictView) return value.items.length > 0;
      if (value instanceof Float) return value.value !== 0;
      if (value instanceof Markup) return value.text.length > 0;
      return value instanceof Range ? value.length > 0 : true;
  }
}

/**
 * Returns an argument that must be an integer: an index, a width, a count. Integers beyond 2**53 become the nearest safe integer.
 *
 * @param what - Name of the argument or operation, for the message.
 */
export function integerArgument(value: TemplateValue, what: string): number {
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value === "number" && Number.isInteger(value)) return value;
  if (typeof value === "bigint") return value > 0n ? Number.MAX_SAFE_INTEGER : Number.MIN_SAFE_INTEGER;
  if (value instanceof Undefined) return value.fail();
  return typeError(`${what}: '${typeName(value)}' object cannot be interpreted as an integer`);
}

/** Max nesting of a value that is passed to a template. */
const MAX_NESTING = 500;

/**
 * Converts parsed JSON to values of the engine. Numbers that are integers become `int`; properties that are undefined are left out.
 *
 * @throws TemplateFailure for a function, symbol or other value without a notation in JSON, and for nesting beyond 500 levels.
 */
export function fromJson(value: unknown, depth = 0): TemplateValue {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "bigint":
      return value;
    case "number":
      return Number.isInteger(value) && !Number.isSafeInteger(value) ? int(BigInt(value)) : value;
    case "object":
      break;
    default:
      throw new TemplateFailure(`Expected JSON values as template variables, got a ${typeof value}.`);
  }
  if (value === null || value instanceof PyObject) return value;
  if (depth > MAX_NESTING) throw new TemplateFailure(`Expected values nested at most ${MAX_NESTING} deep, got deeper ones.`);
  if (Array.isArray(value)) return value.map((item) => fromJson(item === undefined ? null : item, depth + 1));
  const dict = new Dict();
  for (const key of Object.keys(value)) {
    const item = (value as Readonly<Record<string, unknown>>)[key];
    if (item !== undefined) dict.set(key, fromJson(item, depth + 1));
  }
  return dict;
}
