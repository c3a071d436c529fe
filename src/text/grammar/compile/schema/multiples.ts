/** Multiples of a number, as an automaton over decimal digits. */
import type { Dfa, DfaState } from "../regular/dfa.ts";

/** Divisor as a fraction: `numerator` divided by ten to the power of `digits`. */
export interface Divisor {
  readonly numerator: number;
  readonly digits: number;
}

/** Maximum numerator: each remainder is a state. */
const MAX_NUMERATOR = 1000;
const MAX_DIGITS = 12;

/** Returns a positive number as a decimal fraction; null if its numerator or number of digits is too large for an automaton. */
export function toDivisor(value: number): Divisor | null {
  const [mantissa = "0", exponentText = "0"] = value.toExponential().split("e");
  const [head = "0", tail = ""] = mantissa.split(".");
  const digits = tail.length - Number(exponentText);
  const numerator = Number(head + tail) * (digits < 0 ? 10 ** -digits : 1);
  return numerator > MAX_NUMERATOR || digits > MAX_DIGITS ? null : { numerator, digits: Math.max(0, digits) };
}

/** Whether a number is a multiple of another in exact decimal arithmetic: 0.3 is a multiple of 0.1. */
export function isMultiple(value: number, of: number): boolean {
  const scaled = (given: number, digits: number): bigint => {
    const [mantissa = "0", exponent = "0"] = given.toExponential().split("e");
    const [head = "0", tail = ""] = mantissa.split(".");
    return BigInt(head + tail) * 10n ** BigInt(Number(exponent) - tail.length + digits);
  };
  const places = (given: number): number => {
    const [mantissa = "0", exponent = "0"] = given.toExponential().split("e");
    return Math.max(0, (mantissa.split(".")[1] ?? "").length - Number(exponent));
  };
  const digits = Math.max(places(value), places(of));
  return scaled(value, digits) % scaled(of, digits) === 0n;
}

const digit = (value: number): readonly [number, number] => [0x30 + value, 0x30 + value];

/**
 * Returns the automaton of the multiples of a divisor, with optional sign and at most as many fraction digits as the divisor; with
 * `hasZeros`, in any spelling without exponent, that is, also with further zeros.
 */
export function multiplesOf({ numerator, digits }: Divisor, { hasZeros = false } = {}): Dfa {
  const states: DfaState[] = [];
  const places = new Map<string, number>();
  const left: (readonly [remainder: number, fraction: number])[] = [];
  /** Returns the state after digits with a remainder, of which `fraction` follow the point; -1 before the point. */
  const state = (remainder: number, fraction: number): number => {
    const key = `${remainder},${fraction}`;
    let at = places.get(key);
    if (at === undefined) {
      places.set(key, (at = 2 + places.size));
      left.push([remainder, fraction]);
    }
    return at;
  };
  const digitEdges = (remainder: number, fraction: number) =>
    Array.from({ length: 10 }, (_, value) => ({ ranges: [digit(value)], target: state((remainder * 10 + value) % numerator, fraction) }));
  const unsigned = digitEdges(0, -1);
  states.push({ isEnd: false, edges: [{ ranges: [[0x2d, 0x2d]], target: 1 }, ...unsigned] }, { isEnd: false, edges: unsigned });
  for (const [remainder, fraction] of left) {
    let missing = remainder;
    for (let count = Math.max(0, fraction); count < digits; count++) missing = (missing * 10) % numerator;
    const edges = fraction < 0 ? digitEdges(remainder, -1) : fraction < digits ? digitEdges(remainder, fraction + 1) : [];
    const mayHaveZeros = hasZeros && remainder === 0;
    if (mayHaveZeros && fraction >= digits) edges.push({ ranges: [digit(0)], target: state(0, Math.max(1, digits)) });
    if (fraction < 0 && (digits > 0 || mayHaveZeros)) edges.push({ ranges: [[0x2e, 0x2e]], target: state(remainder, 0) });
    states.push({ isEnd: fraction !== 0 && missing === 0, edges });
  }
  return states;
}
