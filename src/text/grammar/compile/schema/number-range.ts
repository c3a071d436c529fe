/** Grammar of numbers between bounds, by decimal digits. */
import { oneOfThese, EMPTY, MATCHES_NOTHING, optional, repeat, sequence, set, text, type Expression } from "../../expression.ts";
import { DIGIT } from "../json-text.ts";
import { decimalOf } from "./multiples.ts";

/** Maximum number of digits of a number without upper bound, which keeps the number finite. */
const MAX_DIGITS = 200;

/** Returns the expression of one digit between two digits. */
function digits(first: number, last: number): Expression {
  return first > last ? MATCHES_NOTHING : set([0x30 + first, 0x30 + last]);
}

/** Returns the expression of the digit strings from `low` to `high`; both have the same length. */
function ofOneLength(low: string, high: string): Expression {
  if (low === high) return text(low);
  const [a, b, rest] = [Number(low[0]), Number(high[0]), low.length - 1];
  const [lowRest, highRest] = [low.slice(1), high.slice(1)];
  if (a === b) return sequence(digits(a, a), ofOneLength(lowRest, highRest));
  const [zeros, nines] = ["0".repeat(rest), "9".repeat(rest)];
  // Leading digits that all digits may follow: those between `a` and `b`, and `a` or `b` if the rest of its bound restricts nothing.
  const [from, to] = [lowRest === zeros ? a : a + 1, highRest === nines ? b : b - 1];
  return oneOfThese(
    ...(a < from ? [sequence(digits(a, a), ofOneLength(lowRest, nines))] : []),
    ...(from <= to ? [sequence(digits(from, to), repeat(DIGIT, rest, rest))] : []),
    ...(to < b ? [sequence(digits(b, b), ofOneLength(zeros, highRest))] : []),
  );
}

/** Returns the expression of integers from `low`, which is not negative, to `high`, null for no bound. */
export function naturalsBetween(low: bigint, high: bigint | null): Expression {
  if (high !== null && high < low) return MATCHES_NOTHING;
  const [from, to] = [String(low), high === null ? null : String(high)];
  if (to !== null && to.length === from.length) return ofOneLength(from, to);
  /** Maximum number of digits of numbers that no bound restricts. */
  const maxDigits = to === null ? Math.max(from.length + 1, MAX_DIGITS) : to.length - 1;
  return oneOfThese(
    ofOneLength(from, "9".repeat(from.length)),
    ...(maxDigits > from.length ? [sequence(digits(1, 9), repeat(DIGIT, from.length, maxDigits - 1))] : []),
    ...(to === null ? [] : [ofOneLength(`1${"0".repeat(to.length - 1)}`, to)]),
  );
}

/** Returns the expression of integers between the bounds, null for no bound. */
export function integersBetween(low: bigint | null, high: bigint | null): Expression {
  const options: Expression[] = [];
  if (low === null || low < 0n) {
    const minValue = high !== null && high < 0n ? -high : 1n;
    options.push(sequence(text("-"), naturalsBetween(minValue, low === null ? null : -low)));
  }
  if (high === null || high >= 0n) options.push(naturalsBetween(low === null || low < 0n ? 0n : low, high));
  return oneOfThese(...options);
}

/** A non-negative decimal number. */
interface DecimalParts {
  readonly whole: bigint;
  /** Digits after the point, without trailing zeros. */
  readonly fraction: string;
}

/** Returns all digits of the absolute value of a double, from its shortest spelling. */
function partsOfDecimal(value: number): DecimalParts {
  const { digits: shortest, places } = decimalOf(Math.abs(value));
  const all = shortest.padStart(places + 1, "0");
  const point = all.length - places;
  return { whole: BigInt(all.slice(0, point).padEnd(point, "0")), fraction: all.slice(point).replace(/0+$/, "") };
}

/**
 * Returns the expression of the remaining digits of a fraction, so that the fraction lies between two bounds.
 *
 * @param low - Remaining digits of the lower bound; null if the digits read so far are already above it.
 * @param high - Remaining digits of the upper bound; null if the digits read so far are already below it.
 * @param canEnd - Whether the fraction may end without a further digit.
 */
function fractionBetween(low: string | null, high: string | null, canEnd: boolean): Expression {
  if (low === "") low = null;
  const minValue = canEnd ? 0 : 1;
  if (high === null && low === null) return repeat(DIGIT, minValue);
  if (high === "") return low === null ? repeat(text("0"), minValue) : MATCHES_NOTHING;
  const a = low === null ? 0 : Number(low[0]);
  const b = high === null ? 9 : Number(high[0]);
  const [lowRest, highRest] = [low === null ? null : low.slice(1), high === null ? null : high.slice(1)];
  const end = canEnd && low === null ? [EMPTY] : [];
  if (a > b) return oneOfThese(...end);
  if (a === b) return oneOfThese(...end, sequence(digits(a, a), fractionBetween(lowRest, highRest, true)));
  return oneOfThese(
    ...end,
    sequence(digits(a, a), fractionBetween(lowRest, null, true)),
    ...(b > a + 1 ? [sequence(digits(a + 1, b - 1), repeat(DIGIT))] : []),
    sequence(digits(b, b), fractionBetween(null, highRest, true)),
  );
}

/** Returns the expression of a whole number and a fraction between `low` and `high`, which are digits; null for no bound. */
function withFraction(whole: Expression, low: string | null, high: string | null): Expression {
  const fraction = sequence(text("."), fractionBetween(low, high, false));
  return sequence(whole, low === null || low === "" ? optional(fraction) : fraction);
}

/** Returns the expression of non-negative numbers between the bounds, `high` null for no bound. */
function magnitudesBetween(low: DecimalParts, high: DecimalParts | null): Expression {
  if (high === null)
    return oneOfThese(
      withFraction(text(String(low.whole)), low.fraction, null),
      withFraction(naturalsBetween(low.whole + 1n, null), null, null),
    );
  if (low.whole > high.whole) return MATCHES_NOTHING;
  if (low.whole === high.whole) return withFraction(text(String(low.whole)), low.fraction, high.fraction);
  return oneOfThese(
    withFraction(text(String(low.whole)), low.fraction, null),
    withFraction(naturalsBetween(low.whole + 1n, high.whole - 1n), null, null),
    withFraction(text(String(high.whole)), null, high.fraction),
  );
}

const ZERO: DecimalParts = { whole: 0n, fraction: "" };

/** Returns the expression of numbers between the bounds, null for no bound, written without exponent. */
export function numbersBetween(low: number | null, high: number | null): Expression {
  if (low !== null && high !== null && low > high) return MATCHES_NOTHING;
  const options: Expression[] = [];
  if (low === null || low < 0)
    options.push(
      sequence(
        text("-"),
        magnitudesBetween(high !== null && high < 0 ? partsOfDecimal(high) : ZERO, low === null ? null : partsOfDecimal(low)),
      ),
    );
  if (high === null || high >= 0)
    options.push(magnitudesBetween(low === null || low < 0 ? ZERO : partsOfDecimal(low), high === null ? null : partsOfDecimal(high)));
  return oneOfThese(...options);
}

/** Returns the next larger double of a finite number. */
export function nextUp(value: number): number {
  if (value === 0) return Number.MIN_VALUE;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigInt64(0, view.getBigInt64(0) + (value > 0 ? 1n : -1n));
  return view.getFloat64(0);
}
