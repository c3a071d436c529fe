/** Multiples of a number, as an automaton over decimal digits. Its states are the remainders of the digits so far. */
import type { Dfa, DfaState } from "../regular/dfa.ts";
import { getOrInsert } from "../../../../base/util/values.ts";

/** Divisor as a fraction: `numerator` divided by ten to the power of `digits`. */
export interface Divisor {
  readonly numerator: number;
  readonly digits: number;
}

/** Maximum numerator of a divisor: each remainder is a state. */
const MAX_NUMERATOR = 1000;
/** Maximum number of fraction digits of a divisor. */
const MAX_DIGITS = 12;

/** Decimal notation of a number: `digits`, divided by ten to the power of `places`, which may be negative. */
interface Decimal {
  readonly digits: string;
  readonly places: number;
}

/** Returns the shortest decimal notation of a finite number. */
export function decimalOf(value: number): Decimal {
  const [mantissa = "0", exponent = "0"] = value.toExponential().split("e");
  const [head = "0", tail = ""] = mantissa.split(".");
  return { digits: head + tail, places: tail.length - Number(exponent) };
}

/** Returns a positive number as a decimal fraction; null if its numerator or number of digits is too large for an automaton. */
export function toDivisor(value: number): Divisor | null {
  const { digits, places } = decimalOf(value);
  const numerator = Number(digits) * (places < 0 ? 10 ** -places : 1);
  return numerator > MAX_NUMERATOR || places > MAX_DIGITS ? null : { numerator, digits: Math.max(0, places) };
}

/** Whether a number is a multiple of another in exact decimal arithmetic: 0.3 is a multiple of 0.1. */
export function isMultiple(value: number, divisor: number): boolean {
  const [dividendDecimal, divisorDecimal] = [decimalOf(value), decimalOf(divisor)];
  const commonPlaces = Math.max(dividendDecimal.places, divisorDecimal.places, 0);
  const scaled = ({ digits, places }: Decimal): bigint => BigInt(digits) * 10n ** BigInt(commonPlaces - places);
  return scaled(dividendDecimal) % scaled(divisorDecimal) === 0n;
}

/** Returns the range of code points of one digit. */
const digit = (value: number): readonly [number, number] => [0x30 + value, 0x30 + value];

/**
 * Returns the automaton of the multiples of a divisor, with optional sign and at most as many fraction digits as the divisor; with
 * `hasZeros`, in any spelling without exponent, that is, also with further zeros.
 */
export function multiplesOf({ numerator, digits }: Divisor, { hasZeros = false } = {}): Dfa {
  const states: DfaState[] = [];
  /** Numbers of the states by remainder and number of fraction digits. */
  const numbers = new Map<string, number>();
  // Remainder and number of fraction digits of each state in the order of their numbers, from 2 on; grows during the loop below.
  const pairs: (readonly [remainder: number, fraction: number])[] = [];
  /**
   * Returns the number of the state after digits with this remainder. `fraction` is the number of digits after the point, -1 before the
   * point.
   */
  const state = (remainder: number, fraction: number): number =>
    getOrInsert(numbers, `${remainder},${fraction}`, () => pairs.push([remainder, fraction]) + 1);
  const digitEdges = (remainder: number, fraction: number) =>
    Array.from({ length: 10 }, (_, value) => ({ ranges: [digit(value)], target: state((remainder * 10 + value) % numerator, fraction) }));
  // State 0 is the start, state 1 follows the sign.
  const unsigned = digitEdges(0, -1);
  states.push({ isEnd: false, edges: [{ ranges: [[0x2d, 0x2d]], target: 1 }, ...unsigned] }, { isEnd: false, edges: unsigned });
  for (const [remainder, fraction] of pairs) {
    // Remainder if the missing fraction digits are zeros.
    let filledRemainder = remainder;
    for (let count = Math.max(0, fraction); count < digits; count++) filledRemainder = (filledRemainder * 10) % numerator;
    const isBeforePoint = fraction < 0;
    const mayHaveZeros = hasZeros && remainder === 0;
    const edges: DfaState["edges"][number][] = [];
    if (isBeforePoint) edges.push(...digitEdges(remainder, -1));
    else if (fraction < digits) edges.push(...digitEdges(remainder, fraction + 1));
    else if (mayHaveZeros) edges.push({ ranges: [digit(0)], target: state(0, Math.max(1, digits)) });
    if (isBeforePoint && (digits > 0 || mayHaveZeros)) edges.push({ ranges: [[0x2e, 0x2e]], target: state(remainder, 0) });
    // A number does not end directly after the point.
    states.push({ isEnd: fraction !== 0 && filledRemainder === 0, edges });
  }
  return states;
}
