/** Grammar of the numbers that a schema describes. */
import { intersection } from "../../code-points.ts";
import { set, type Expression } from "../../expression.ts";
import { INTEGER, NUMBER } from "../json-text.ts";
import { TooLarge } from "../regular/derivative.ts";
import { complementOf, dfaExpression, minimized, productOf } from "../regular/dfa.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { INTEGER_FORMATS } from "./formats.ts";
import { asList, invalid, type SchemaObject } from "./keywords.ts";
import { notsOf } from "./merge.ts";
import { multiplesOf, toDivisor } from "./multiples.ts";
import { integersBetween, nextUp, numbersBetween } from "./number-range.ts";

/** Returns the value of a keyword for a bound; null if it is absent. */
function bound(schema: SchemaObject, keyword: string, path: string): number | null {
  const value = schema[keyword];
  if (value === undefined) return null;
  if (typeof value !== "number" || !Number.isFinite(value)) throw invalid(keyword, path, "a number", value);
  return value;
}

/** Inclusive bounds of a number; null for no bound. */
interface Bounds {
  readonly low: number | null;
  readonly high: number | null;
  /** Ranges of the integer formats, which apply in addition. Empty unless the number is an integer. */
  readonly ranges: readonly (readonly [low: bigint, high: bigint])[];
}

/** Returns the stricter of two bounds, null for no bound; `choose` is `Math.max` or `Math.min`. */
function stricter(a: number | null, b: number | null, choose: (a: number, b: number) => number): number | null {
  if (a === null || b === null) return a ?? b;
  return choose(a, b);
}

/**
 * Returns the inclusive bounds. An exclusive bound becomes the adjacent double, since a text between two doubles is rounded to one of them.
 */
function boundsOf(schema: SchemaObject, path: string): Bounds {
  const [above, below] = [bound(schema, "exclusiveMinimum", path), bound(schema, "exclusiveMaximum", path)];
  return {
    low: stricter(bound(schema, "minimum", path), above === null ? null : nextUp(above), Math.max),
    high: stricter(bound(schema, "maximum", path), below === null ? null : -nextUp(-below), Math.min),
    ranges: asList(schema["format"]).flatMap((format) => {
      const range = INTEGER_FORMATS.get(format as string);
      return range === undefined ? [] : [range];
    }),
  };
}

/** Returns the expression of the numbers within bounds. */
function between({ low, high, ranges }: Bounds, isInteger: boolean): Expression {
  if (!isInteger) return numbersBetween(low, high);
  let min = low === null ? null : BigInt(Math.ceil(low));
  let max = high === null ? null : BigInt(Math.floor(high));
  for (const [rangeLow, rangeHigh] of ranges) {
    if (min === null || rangeLow > min) min = rangeLow;
    if (max === null || rangeHigh < max) max = rangeHigh;
  }
  return integersBetween(min, max);
}

/** Maximum number of digits, including fraction digits: with more digits, doubles cannot distinguish multiples. */
const MAX_DIGITS = 15;
/**
 * Minimum number of the {@link MAX_DIGITS} digits that are reserved for the whole part if a `not` excludes multiples; the others are
 * fraction digits.
 */
const MIN_WHOLE_DIGITS = 9;

/** Conditions for a number in addition to its bounds. */
interface Divisibility {
  /** The number must be a multiple of each of these. */
  readonly divisors: readonly number[];
  /** The number must not be a multiple of any of these. */
  readonly excluded: readonly number[];
}

/**
 * Returns the number of fraction digits with which multiples are distinguished; null if numbers within the bounds have too many digits.
 *
 * @param digits - Number of fraction digits of the divisors.
 */
function fractionDigits({ low, high }: Bounds, isInteger: boolean, digits: number, { excluded }: Divisibility): number | null {
  if (isInteger || excluded.length === 0) return digits;
  const smallestMagnitude = Math.max(low ?? 0, -(high ?? 0), 0);
  const wholeDigits = smallestMagnitude < 10 ** MAX_DIGITS ? String(Math.trunc(smallestMagnitude)).length + 1 : Infinity;
  const available = MAX_DIGITS - Math.max(MIN_WHOLE_DIGITS, wholeDigits);
  return available < Math.max(1, digits) ? null : available;
}

/** Returns the expression of the numbers between bounds that meet the conditions; null if the automaton would be too large. */
function multiplesBetween(bounds: Bounds, isInteger: boolean, divisibility: Divisibility, compiler: SchemaCompiler): Expression | null {
  const { languages, builder } = compiler;
  const divisors = divisibility.divisors.map(toDivisor).filter((divisor) => divisor !== null);
  const excluded = divisibility.excluded.map(toDivisor).filter((divisor) => divisor !== null);
  if (divisors.length < divisibility.divisors.length || excluded.length < divisibility.excluded.length) return null;
  const divisorDigits = Math.max(...[...divisors, ...excluded].map((divisor) => divisor.digits));
  const digits = fractionDigits(bounds, isInteger, divisorDigits, divisibility);
  if (digits === null) return null;
  const largest = 10 ** (MAX_DIGITS - digits) - 1;
  const low = stricter(bounds.low, -largest, Math.max);
  const high = stricter(bounds.high, largest, Math.min);
  const { terms } = languages;
  const digit = terms.set([[0x30, 0x39]]);
  const fraction = terms.concat(terms.text("."), terms.repeat(digit, 1, Math.max(1, digits)));
  const unsigned = terms.concat(terms.repeat(digit, 1, Infinity), terms.repeat(fraction, 0, 1));
  const withMaxDigits = terms.concat(terms.repeat(terms.text("-"), 0, 1), unsigned);
  try {
    const conditions = [
      ...divisors.map((divisor) => multiplesOf(divisor)),
      ...excluded.map((divisor) => complementOf(multiplesOf(divisor, { hasZeros: true }))),
    ];
    let dfa = languages.dfa(languages.termOf(between({ ...bounds, low, high }, isInteger)));
    // Without divisors, nothing else limits the number of fraction digits.
    if (excluded.length > 0) conditions.push(languages.dfa(withMaxDigits));
    for (const condition of conditions) dfa = productOf(dfa, minimized(condition), intersection);
    return dfaExpression(dfa, builder, (ranges) => set(...ranges));
  } catch (error) {
    if (error instanceof TooLarge) return null;
    throw error;
  }
}

/** Checks values of `multipleOf`. */
function toDivisors(values: readonly unknown[], path: string): readonly number[] {
  return values.map((value) => {
    if (typeof value !== "number" || !(value > 0) || !Number.isFinite(value)) throw invalid("multipleOf", path, "a number above 0", value);
    return value;
  });
}

/**
 * Returns the expression of the numbers that a schema describes. Integers have no fraction; numbers with bounds or divisors have no
 * exponent.
 */
export function numberOf(schema: SchemaObject, isIntegral: boolean, compiler: SchemaCompiler, path: string): Expression {
  const nots = notsOf(schema["not"]);
  if (nots.some(({ enum: values }) => asList(values).some((value) => typeof value === "number")))
    compiler.relax("not", path, "numbers are compared with single values at the end");
  const bounds = boundsOf(schema, path);
  const isInteger = isIntegral || bounds.ranges.length > 0;
  const divisors = toDivisors(asList(schema["multipleOf"]), path).filter((divisor) => !(isInteger && divisor === 1));
  const excluded = toDivisors(
    nots.flatMap((not) => asList(not["multipleOf"])),
    path,
  );
  if (divisors.length + excluded.length > 0) {
    const multiples = multiplesBetween(bounds, isInteger, { divisors, excluded }, compiler);
    if (multiples !== null) return multiples;
    compiler.relax(divisors.length > 0 ? "multipleOf" : "not", path, "its automaton has too many states");
  }
  if (bounds.low === null && bounds.high === null && bounds.ranges.length === 0) return isInteger ? INTEGER : NUMBER;
  return between(bounds, isInteger);
}
