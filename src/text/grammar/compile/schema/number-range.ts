/** Grammar of numbers between bounds, by decimal digits. */
import { choice, EMPTY, MATCHES_NOTHING, optional, repeat, sequence, set, text, type Expression } from "../../expression.ts";
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
  const [lowDigit, highDigit] = [Number(low[0]), Number(high[0])];
  const [lowTail, highTail] = [low.slice(1), high.slice(1)];
  if (lowDigit === highDigit) return sequence(digits(lowDigit, lowDigit), ofOneLength(lowTail, highTail));
  const { length } = lowTail;
  const [zeros, nines] = ["0".repeat(length), "9".repeat(length)];
  // Leading digits that all digits may follow. A bound's own digit is one of them if the tail of the bound restricts nothing.
  const firstFree = lowTail === zeros ? lowDigit : lowDigit + 1;
  const lastFree = highTail === nines ? highDigit : highDigit - 1;
  const options: Expression[] = [];
  if (lowDigit < firstFree) options.push(sequence(digits(lowDigit, lowDigit), ofOneLength(lowTail, nines)));
  if (firstFree <= lastFree) options.push(sequence(digits(firstFree, lastFree), repeat(DIGIT, length, length)));
  if (lastFree < highDigit) options.push(sequence(digits(highDigit, highDigit), ofOneLength(zeros, highTail)));
  return choice(...options);
}

/** Returns the expression of integers from `low`, which is not negative, to `high`, null for no bound. */
export function naturalsBetween(low: bigint, high: bigint | null): Expression {
  if (high !== null && high < low) return MATCHES_NOTHING;
  const lowDigits = String(low);
  const highDigits = high === null ? null : String(high);
  const { length } = lowDigits;
  if (highDigits?.length === length) return ofOneLength(lowDigits, highDigits);
  /** Maximum number of digits of numbers that no bound restricts. */
  const maxFreeDigits = highDigits === null ? Math.max(length + 1, MAX_DIGITS) : highDigits.length - 1;
  const options = [ofOneLength(lowDigits, "9".repeat(length))];
  if (maxFreeDigits > length) options.push(sequence(digits(1, 9), repeat(DIGIT, length, maxFreeDigits - 1)));
  if (highDigits !== null) options.push(ofOneLength(`1${"0".repeat(highDigits.length - 1)}`, highDigits));
  return choice(...options);
}

/** Returns the expression of integers between the bounds, null for no bound. */
export function integersBetween(low: bigint | null, high: bigint | null): Expression {
  const options: Expression[] = [];
  if (low === null || low < 0n) {
    const minValue = high !== null && high < 0n ? -high : 1n;
    options.push(sequence(text("-"), naturalsBetween(minValue, low === null ? null : -low)));
  }
  if (high === null || high >= 0n) options.push(naturalsBetween(low === null || low < 0n ? 0n : low, high));
  return choice(...options);
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
  const padded = shortest.padStart(places + 1, "0");
  /** Number of digits before the point. Larger than the number of all digits if `places` is negative. */
  const point = padded.length - places;
  return { whole: BigInt(padded.slice(0, point).padEnd(point, "0")), fraction: padded.slice(point).replace(/0+$/, "") };
}

/**
 * Returns the expression of the remaining digits of a fraction, so that the fraction lies between two bounds.
 *
 * @param low - Remaining digits of the lower bound; null if the digits read so far are already above it.
 * @param high - Remaining digits of the upper bound; null if the digits read so far are already below it.
 * @param canEnd - Whether the fraction may end without a further digit.
 */
function fractionBetween(low: string | null, high: string | null, { canEnd }: { readonly canEnd: boolean }): Expression {
  // A bound without remaining digits is reached by any digits.
  const lowTail = low === "" ? null : low;
  const minDigits = canEnd ? 0 : 1;
  if (high === null && lowTail === null) return repeat(DIGIT, minDigits);
  if (high === "") return lowTail === null ? repeat(text("0"), minDigits) : MATCHES_NOTHING;
  const lowDigit = lowTail === null ? 0 : Number(lowTail[0]);
  const highDigit = high === null ? 9 : Number(high[0]);
  const [nextLow, nextHigh] = [lowTail?.slice(1) ?? null, high?.slice(1) ?? null];
  const options: Expression[] = canEnd && lowTail === null ? [EMPTY] : [];
  if (lowDigit === highDigit) {
    options.push(sequence(digits(lowDigit, lowDigit), fractionBetween(nextLow, nextHigh, { canEnd: true })));
  } else if (lowDigit < highDigit) {
    options.push(sequence(digits(lowDigit, lowDigit), fractionBetween(nextLow, null, { canEnd: true })));
    if (highDigit > lowDigit + 1) options.push(sequence(digits(lowDigit + 1, highDigit - 1), repeat(DIGIT)));
    options.push(sequence(digits(highDigit, highDigit), fractionBetween(null, nextHigh, { canEnd: true })));
  }
  return choice(...options);
}

/** Returns the expression of a whole number and a fraction between `low` and `high`, which are digits; null for no bound. */
function withFraction(whole: Expression, low: string | null, high: string | null): Expression {
  const fraction = sequence(text("."), fractionBetween(low, high, { canEnd: false }));
  return sequence(whole, low === null || low === "" ? optional(fraction) : fraction);
}

/** Returns the expression of non-negative numbers between the bounds, `high` null for no bound. */
function magnitudesBetween(low: DecimalParts, high: DecimalParts | null): Expression {
  if (high === null)
    return choice(
      withFraction(text(String(low.whole)), low.fraction, null),
      withFraction(naturalsBetween(low.whole + 1n, null), null, null),
    );
  if (low.whole > high.whole) return MATCHES_NOTHING;
  if (low.whole === high.whole) return withFraction(text(String(low.whole)), low.fraction, high.fraction);
  return choice(
    withFraction(text(String(low.whole)), low.fraction, null),
    withFraction(naturalsBetween(low.whole + 1n, high.whole - 1n), null, null),
    withFraction(text(String(high.whole)), null, high.fraction),
  );
}

const ZERO: DecimalParts = { whole: 0n, fraction: "" };

/** Returns the expression of numbers between the bounds, null for no bound, written without exponent. */
export function numbersBetween(low: number | null, high: number | null): Expression {
  if (low !== null && high !== null && low > high) return MATCHES_NOTHING;
  // `partsOfDecimal` drops the sign.
  const [lowParts, highParts] = [low === null ? null : partsOfDecimal(low), high === null ? null : partsOfDecimal(high)];
  const [mayBeNegative, mayBePositive] = [low === null || low < 0, high === null || high >= 0];
  const options: Expression[] = [];
  if (mayBeNegative) options.push(sequence(text("-"), magnitudesBetween(mayBePositive ? ZERO : (highParts ?? ZERO), lowParts)));
  if (mayBePositive) options.push(magnitudesBetween(mayBeNegative ? ZERO : (lowParts ?? ZERO), highParts));
  return choice(...options);
}

/** Returns the next larger double of a finite number. */
export function nextUp(value: number): number {
  if (value === 0) return Number.MIN_VALUE;
  // The bits of doubles of one sign, read as integers, are in the order of their magnitudes.
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  view.setBigInt64(0, view.getBigInt64(0) + (value > 0 ? 1n : -1n));
  return view.getFloat64(0);
}
