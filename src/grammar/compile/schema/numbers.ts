/** Grammar of the numbers that a schema describes. */
import { intersection } from "../../code-points.ts";
import { set, type Expression } from "../../expression.ts";
import { INTEGER, NUMBER } from "../json-text.ts";
import { TooLarge } from "../regular/derivative.ts";
import { dfaExpression, minimized, productOf } from "../regular/dfa.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { INTEGER_FORMATS } from "./formats.ts";
import { asList, invalid, type SchemaObject } from "./keywords.ts";
import { notsOf } from "./merge.ts";
import { multiplesOf, toDivisor } from "./multiples.ts";
import { integersBetween, nextUp, numbersBetween } from "./number-range.ts";

function bound(schema: SchemaObject, keyword: string, path: string): number | null {
  const value = schema[keyword];
  if (value === undefined) return null;
  if (typeof value !== "number" || !Number.isFinite(value)) throw invalid(keyword, path, "a number", value);
  return value;
}

interface Bounds {
  readonly low: number | null;
  readonly high: number | null;
  /** Ranges of the integer formats, which apply in addition. Empty unless the number is an integer. */
  readonly ranges: readonly (readonly [low: bigint, high: bigint])[];
}

function stricter(a: number | null, b: number | null, of: (a: number, b: number) => number): number | null {
  return a === null ? b : b === null ? a : of(a, b);
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

function between({ low, high, ranges }: Bounds, isInteger: boolean): Expression {
  if (!isInteger) return numbersBetween(low, high);
  const lows = [...(low === null ? [] : [BigInt(Math.ceil(low))]), ...ranges.map((range) => range[0])];
  const highs = [...(high === null ? [] : [BigInt(Math.floor(high))]), ...ranges.map((range) => range[1])];
  const extreme = (values: readonly bigint[], isBetter: (a: bigint, b: bigint) => boolean): bigint | null =>
    values.reduce<bigint | null>((best, value) => (best === null || isBetter(value, best) ? value : best), null);
  return integersBetween(
    extreme(lows, (a, b) => a > b),
    extreme(highs, (a, b) => a < b),
  );
}

/** Maximum number of digits, including the divisor's fraction digits: with more digits, doubles cannot distinguish multiples. */
const MAX_DIGITS = 15;

/** Returns the expression of the common multiples of all divisors between bounds; null if the automaton would be too large. */
function multiplesBetween(bounds: Bounds, isInteger: boolean, divisors: readonly number[], compiler: SchemaCompiler): Expression | null {
  const { languages, builder } = compiler;
  const found = divisors.map(toDivisor);
  if (found.includes(null)) return null;
  const fractions = found.map((divisor) => divisor!);
  const largest = 10 ** (MAX_DIGITS - Math.max(...fractions.map(({ digits }) => digits))) - 1;
  const low = stricter(bounds.low, -largest, Math.max);
  const high = stricter(bounds.high, largest, Math.min);
  try {
    let dfa = languages.dfa(languages.termOf(between({ ...bounds, low, high }, isInteger)));
    for (const fraction of fractions) dfa = productOf(dfa, minimized(multiplesOf(fraction)), intersection);
    return dfaExpression(dfa, builder, (ranges) => set(...ranges));
  } catch (error) {
    if (error instanceof TooLarge) return null;
    throw error;
  }
}

/**
 * Returns the expression of the numbers that a schema describes. Integers have no fraction; numbers with bounds or divisors have no
 * exponent.
 */
export function numberOf(schema: SchemaObject, isIntegral: boolean, compiler: SchemaCompiler, path: string): Expression {
  const divisors = asList(schema["multipleOf"]).map((value) => {
    if (typeof value !== "number" || !(value > 0) || !Number.isFinite(value)) throw invalid("multipleOf", path, "a number above 0", value);
    return value;
  });
  if (notsOf(schema["not"]).some(({ enum: values }) => asList(values).some((value) => typeof value === "number")))
    compiler.relax("not", path, "numbers are compared with single values at the end");
  const bounds = boundsOf(schema, path);
  const isInteger = isIntegral || bounds.ranges.length > 0;
  const needed = divisors.filter((divisor) => !(isInteger && divisor === 1));
  if (needed.length > 0) {
    const multiples = multiplesBetween(bounds, isInteger, needed, compiler);
    if (multiples !== null) return multiples;
    compiler.relax("multipleOf", path, "its automaton has too many states");
  }
  if (bounds.low === null && bounds.high === null && bounds.ranges.length === 0) return isInteger ? INTEGER : NUMBER;
  return between(bounds, isInteger);
}
