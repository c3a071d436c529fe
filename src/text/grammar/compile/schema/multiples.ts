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

/** Digits of a number so far. */
interface Digits {
  /** Remainder of the digits as one integer, divided by the numerator of the divisor. */
  readonly remainder: number;
  /** Number of digits after the point; null before the point. */
  readonly fraction: number | null;
}

/**
 * Returns the automaton of the multiples of a divisor, with optional sign and at most as many fraction digits as the divisor.
 *
 * @param options - `hasZeros` allows further zeros after them, and so any spelling without exponent.
 */
export function multiplesOf({ numerator, digits }: Divisor, { hasZeros = false } = {}): Dfa {
  // State 0 is the start, state 1 follows the sign, and later states follow digits.
  const firstDigitsState = 2;
  /** Digits before each state, from the first state that follows digits on. */
  const digitsOfStates: Digits[] = [];
  const numbers = new Map<string, number>();
  /** Returns the number of the state after some digits. */
  const stateAfter = (reached: Digits): number =>
    getOrInsert(numbers, `${reached.remainder},${reached.fraction}`, () => firstDigitsState + digitsOfStates.push(reached) - 1);
  /** Returns an edge for each further digit. */
  const digitEdges = (remainder: number, fraction: number | null) =>
    Array.from({ length: 10 }, (_, value) => {
      const target = stateAfter({ remainder: (remainder * 10 + value) % numerator, fraction });
      return { ranges: [digit(value)], target };
    });
  const firstDigits = digitEdges(0, null);
  const states: DfaState[] = [
    { isEnd: false, edges: [{ ranges: [[0x2d, 0x2d]], target: 1 }, ...firstDigits] },
    { isEnd: false, edges: firstDigits },
  ];
  // The loop reaches digits that are added meanwhile.
  for (const { remainder, fraction } of digitsOfStates) {
    const mayHaveZeros = hasZeros && remainder === 0;
    const edges: DfaState["edges"][number][] = [];
    if (fraction === null) {
      edges.push(...digitEdges(remainder, null));
      if (digits > 0 || mayHaveZeros) edges.push({ ranges: [[0x2e, 0x2e]], target: stateAfter({ remainder, fraction: 0 }) });
    } else if (fraction < digits) {
      edges.push(...digitEdges(remainder, fraction + 1));
    } else if (mayHaveZeros) {
      edges.push({ ranges: [digit(0)], target: stateAfter({ remainder: 0, fraction: Math.max(1, digits) }) });
    }
    // A text may end before all fraction digits of the divisor are there: those that are missing count as zeros.
    let filledRemainder = remainder;
    for (let count = fraction ?? 0; count < digits; count++) filledRemainder = (filledRemainder * 10) % numerator;
    // A number does not end directly after the point.
    states.push({ isEnd: fraction !== 0 && filledRemainder === 0, edges });
  }
  return states;
}
