/** Checks and conversions of values of any type. */
import { ArgumentError, type WhetstoneError, type WhetstoneErrorOptions } from "../errors.ts";

/**
 * Whether a value is an object with members: not null, not an array. Objects of classes count.
 *
 * @example
 * ```ts
 * isRecord({ a: 1 }); // true
 * isRecord([1]); // false
 * ```
 */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Returns the message of a thrown value: `message` of an error, the text of any other value.
 *
 * @example
 * ```ts
 * messageOf(new RangeError("too large")); // "too large"
 * messageOf("too large"); // "too large"
 * ```
 */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Parses JSON; undefined for a text that is not JSON.
 *
 * @example
 * ```ts
 * parseJson("[1]"); // [1]
 * parseJson("[1"); // undefined
 * ```
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Returns the value of a key that the map must have.
 *
 * @throws Error naming the key if the map has no such entry, which is a bug of the caller.
 * @example
 * ```ts
 * getOrThrow(new Map([["a", 1]]), "a"); // 1
 * ```
 */
export function getOrThrow<Key, Value extends NonNullable<unknown>>(map: ReadonlyMap<Key, Value>, key: Key): Value {
  const value = map.get(key);
  if (value === undefined) throw new Error(`Expected an entry of the map for the key "${String(key)}", got none`);
  return value;
}

/** Maps and weak maps. */
interface Entries<Key, Value> {
  get(key: Key): Value | undefined;
  set(key: Key, value: Value): unknown;
}

/** Returns the value of a key. If the map has no entry, makes the value and adds it. `make` may use the map itself. */
export function getOrInsert<Key, Value extends NonNullable<unknown> | null>(map: Entries<Key, Value>, key: Key, make: () => Value): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}

/** Lists and typed arrays. */
interface Items<T> {
  readonly length: number;
  at(index: number): T | undefined;
}

/**
 * Returns the item at an index from 0. Slower than `[]` in a loop over numbers.
 *
 * @throws RangeError for an index out of range, or below 0, such as the result of `indexOf` without a match.
 */
export function itemAt<T>(items: Items<T>, index: number): T {
  const item = index < 0 ? undefined : items.at(index);
  if (item === undefined) throw new RangeError(`Expected an item at index ${index}, got ${items.length} items`);
  return item;
}

/** Returns the first item. @throws RangeError for an empty list */
export function first<T>(items: Items<T>): T {
  return itemAt(items, 0);
}

/** Returns the last item. @throws RangeError for an empty list */
export function last<T>(items: Items<T>): T {
  return itemAt(items, items.length - 1);
}

/** Returns the code point at an index of UTF-16 code units. @throws RangeError at the end of the text */
export function codePointAt(text: string, index: number): number {
  const codePoint = text.codePointAt(index);
  if (codePoint === undefined) throw new RangeError(`Expected a character at index ${index}, got ${text.length} code units`);
  return codePoint;
}

/** Returns the pairs of items with the same index. @throws RangeError if the lengths differ */
export function zip<A, B>(a: readonly A[], b: readonly B[]): [A, B][] {
  if (a.length !== b.length) throw new RangeError(`Expected as many items as ${a.length}, got ${b.length}`);
  return a.map((item, index) => [item, b[index] as B]);
}

/**
 * Throws the error of an option with an invalid value.
 *
 * @param param - Name of the option, as the caller wrote it.
 * @param expected - Description of the valid values, after "to be".
 * @param got - Invalid value, shown in the message.
 * @param ErrorClass - Class of the error. @default ArgumentError
 * @returns never.
 * @throws ArgumentError `E_ARGUMENT`, or an error of `ErrorClass`, with the message "Expected `param` to be …, got `…`".
 * @example
 * ```ts
 * refuse("weight", "a finite number", Number.NaN); // ArgumentError: Expected `weight` to be a finite number, got `NaN`
 * ```
 */
export function refuse(
  param: string,
  expected: string,
  got: unknown,
  ErrorClass: new (message: string, options: WhetstoneErrorOptions) => WhetstoneError = ArgumentError,
): never {
  throw new ErrorClass(`Expected \`${param}\` to be ${expected}, got \`${String(got)}\``, { param });
}

/**
 * Requires that an option is a safe integer of at least `min`.
 *
 * @param param - Name of the option, as the caller wrote it.
 * @param value - Value of the option.
 * @param min - Smallest valid value.
 * @throws ArgumentError `E_ARGUMENT` for any other value.
 * @example
 * ```ts
 * checkInteger("maxTokens", 0.5, 1); // ArgumentError: Expected `maxTokens` to be an integer of at least 1, got `0.5`
 * ```
 */
export function checkInteger(param: string, value: number, min: number): void {
  if (!(Number.isSafeInteger(value) && value >= min)) refuse(param, `an integer of at least ${min}`, value);
}
