/**
 * Lenient field types of the chat wire format. Clients in other languages send `"2"` for 2 and `"true"` for true, and other servers accept
 * such values: integers from integral floats, numeric strings and booleans; numbers from the same; booleans from 0, 1 and the usual words;
 * strings from strings only.
 */
import { z } from "zod";
import { shown } from "../../../base/util/shown.ts";

const INT64_MIN = -(2n ** 63n);
const INT64_MAX = 2n ** 63n - 1n;
const INTEGER_TEXT = /^\s*[+-]?\d+(?:\.0*)?\s*$/;
const NUMBER_TEXT = /^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*$/;
/** Words for booleans, in lower case. */
const BOOLEAN_WORDS = new Map([
  ...["1", "true", "t", "yes", "y", "on"].map((word) => [word, true] as const),
  ...["0", "false", "f", "no", "n", "off"].map((word) => [word, false] as const),
]);

/** Returns the integer that a value represents, or undefined if it represents none. */
export function toInteger(value: unknown): number | undefined {
  if (typeof value === "number") return Number.isInteger(value) ? value : undefined;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value === "bigint") return Number(value);
  return typeof value === "string" && INTEGER_TEXT.test(value) ? Number(value) : undefined;
}

/** Returns the boolean that a value represents, or undefined if it represents none. */
export function toBoolean(value: unknown): boolean | undefined {
  if (typeof value === "boolean") return value;
  if (value === 0 || value === 1) return value === 1;
  return typeof value === "string" ? BOOLEAN_WORDS.get(value.toLowerCase()) : undefined;
}

/** Returns the finite number that a value represents, or undefined if it represents none. */
function toNumber(value: unknown): number | undefined {
  if (typeof value === "number") return Number.isFinite(value) ? value : undefined;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value !== "string" || !NUMBER_TEXT.test(value)) return undefined;
  const number = Number(value);
  return Number.isFinite(number) ? number : undefined;
}

/**
 * Maximum length of a text that is parsed as a 64-bit integer. Such integers have at most 19 digits, and parsing millions of digits is
 * slow.
 */
const MAX_DIGITS = 40;

/** Returns the integer that a value represents, with all its digits, or undefined if it represents none. */
function toBigInt(value: unknown): bigint | undefined {
  if (typeof value === "bigint") return value;
  if (typeof value === "string") {
    if (value.length > MAX_DIGITS || !INTEGER_TEXT.test(value)) return undefined;
    const digits = value.trim().replace(/^\+/, "").replace(/\.0*$/, "");
    return BigInt(digits);
  }
  const number = toInteger(value);
  return number === undefined ? undefined : BigInt(number);
}

/** JSON schemas of the strings that are parsed as numbers and booleans. Surrounding white space is also accepted. */
const INTEGER_SCHEMA = { type: "string", pattern: "^[+-]?[0-9]+(?:\\.0*)?$" };
const NUMBER_SCHEMA = { type: "string", pattern: "^[+-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?$" };
const BOOLEAN_SCHEMA = { type: "string", pattern: `^(?:${[...BOOLEAN_WORDS.keys()].map(anyCase).join("|")})$` };

/** Returns the source of a pattern that matches a word in any case. */
function anyCase(word: string): string {
  return word.replace(/[a-z]/gu, (letter) => `[${letter}${letter.toUpperCase()}]`);
}

/**
 * Returns the schema of a lenient type.
 *
 * @param expected - Name of the type in error messages.
 * @param convert - Returns the converted value; undefined for a value that represents none.
 * @param schema - JSON schema of the accepted values, for the OpenAPI description of the service.
 */
function lax<T>(expected: string, convert: (value: unknown) => T | undefined, schema: Readonly<Record<string, unknown>>) {
  return z
    .unknown()
    .transform((value, context): T => {
      const converted = convert(value);
      if (converted !== undefined) return converted;
      context.addIssue({ code: "custom", message: `expected ${expected}, got ${shown(value)}` });
      return z.NEVER;
    })
    .meta(schema);
}

/** Integer; also accepts `2.0`, `"2"` and `true`. */
export const laxInteger = lax("an integer", toInteger, { anyOf: [{ type: "integer" }, INTEGER_SCHEMA, { type: "boolean" }] });

/** Finite number; also accepts `"0.5"` and `true`. */
export const laxNumber = lax("a finite number", toNumber, { anyOf: [{ type: "number" }, NUMBER_SCHEMA, { type: "boolean" }] });

/** Boolean; also accepts 0, 1 and the words true, false, yes, no, on, off, t, f, y, n in any case. */
export const laxBoolean = lax("a boolean", toBoolean, { anyOf: [{ type: "boolean" }, { enum: [0, 1] }, BOOLEAN_SCHEMA] });

/** String; no other type is converted. */
export const strictString = lax("a string", (value) => (typeof value === "string" ? value : undefined), { type: "string" });

/**
 * Returns the type of a signed 64-bit integer, as bigint. A JSON number with more digits than a double holds must arrive as bigint (see
 * `parseBody`); a double is checked after rounding.
 *
 * @param min - Minimum value. @default -2^63
 */
export function laxInt64(min: bigint = INT64_MIN) {
  const convert = z.unknown().transform((value, context): bigint => {
    const integer = toBigInt(value);
    if (integer !== undefined && integer >= min && integer <= INT64_MAX) return integer;
    context.addIssue({ code: "custom", message: `expected ${int64Problem(value, integer, min)}` });
    return z.NEVER;
  });
  // The doubles nearest to the bounds of the type lie outside them, so these bounds are omitted from the schema.
  const bound = min === INT64_MIN ? {} : { minimum: Number(min) };
  const textSchema = { ...INTEGER_SCHEMA, maxLength: MAX_DIGITS };
  return convert.meta({ anyOf: [{ type: "integer", ...bound }, textSchema, { type: "boolean" }], description: "A signed 64-bit integer." });
}

/** Returns the expected and the actual value for a value that is not a 64-bit integer of at least `min`. */
function int64Problem(value: unknown, integer: bigint | undefined, min: bigint): string {
  if (integer === undefined) {
    const length = typeof value === "string" && value.length > MAX_DIGITS ? ` of at most ${MAX_DIGITS} characters` : "";
    return `an integer${length}, got ${shown(value)}`;
  }
  if (integer < min) return `an integer greater than or equal to ${min} (greater_than_equal), got ${integer}`;
  return `an integer less than or equal to ${INT64_MAX} (less_than_equal), got ${integer}`;
}
