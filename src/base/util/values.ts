/** Checks and conversions of values of any type. */

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
