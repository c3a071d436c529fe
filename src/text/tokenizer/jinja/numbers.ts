/** Numbers of Python: arithmetic of integers up to 2**53 and floats, with the signs of `//` and `%`; reading, rounding and formatting. */

import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import { strip } from "./text.ts";
import { Float, float, int, isFloat, typeName, Undefined, type TemplateValue } from "./values.ts";

/** Max digits of a text that Python reads as an integer. */
export const MAX_DIGITS = 4300;

/** Converts a value to a JavaScript number; undefined for other values than numbers. */
export function toNumber(value: TemplateValue): number | undefined {
  switch (typeof value) {
    case "boolean":
    case "bigint":
    case "number":
      return Number(value);
    default:
      return value instanceof Float ? value.value : undefined;
  }
}

/**
 * Returns `float(value)` of a number; undefined for other values.
 *
 * @throws TemplateFailure when an `int` is too large for a `float`.
 */
export function toReal(value: TemplateValue): number | undefined {
  const real = toNumber(value);
  if (typeof value === "bigint" && !Number.isFinite(real)) throw new TemplateFailure("OverflowError: int too large to convert to float");
  return real;
}

/** Arithmetic operators. */
export type Arithmetic = "+" | "-" | "*" | "/" | "//" | "%" | "**";

/**
 * Applies an operator to two numbers; undefined if one of the values is not a number.
 *
 * @throws TemplateUnsupported for integers beyond 2**53, which are read, compared and printed exactly, and for `**` with a float as result.
 */
export function arithmetic(operator: Arithmetic, left: TemplateValue, right: TemplateValue): TemplateValue | undefined {
  if (toNumber(left) === undefined || toNumber(right) === undefined) return undefined;
  const isReal = isFloat(left) || isFloat(right);
  if (!isReal && (typeof left === "bigint" || typeof right === "bigint")) return tooLarge();
  const [a, b] = [toReal(left) as number, toReal(right) as number];
  if (operator === "**" && (isReal || b < 0)) return unsupported("`**` of a float, or with a negative exponent");
  const result = compute(operator, a, b);
  if (isReal || operator === "/") return float(result);
  // Adding 0 turns -0 to 0: an `int` has no negative zero.
  return Number.isSafeInteger(result) ? result + 0 : tooLarge();
}

/** @throws TemplateUnsupported always. */
function tooLarge(): never {
  return unsupported("arithmetic with integers beyond 2**53");
}

/** Returns the result of an operator on two numbers. The signs of `//` and `%` are as in Python. */
function compute(operator: Arithmetic, a: number, b: number): number {
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "**": {
      const power = a ** b;
      // `**` of JavaScript may be off by one bit.
      return Number.isSafeInteger(power) ? Number(BigInt(a) ** BigInt(b)) : power;
    }
    case "/":
      if (b === 0) throw new TemplateFailure("ZeroDivisionError: division by zero");
      return a / b;
    case "//":
    case "%": {
      if (b === 0) throw new TemplateFailure("ZeroDivisionError: division or modulo by zero");
      const remainder = modulo(a, b);
      return operator === "%" ? remainder : floorQuotient(a, b, remainder);
    }
  }
}

/** Returns `a % b` of Python, which has the sign of the divisor. */
function modulo(a: number, b: number): number {
  const remainder = a % b;
  if (remainder === 0) return b < 0 ? -0 : 0;
  return b < 0 === remainder < 0 ? remainder : remainder + b;
}

/** Returns `a // b` of Python, computed from its remainder as CPython does for floats. */
function floorQuotient(a: number, b: number, remainder: number): number {
  const quotient = (a - remainder) / b;
  if (quotient === 0) return a / b < 0 || Object.is(a / b, -0) ? -0 : 0;
  // The division may be a little too small, although its exact result is an integer.
  const whole = Math.floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

/** Returns a finite float as integers: it equals `mantissa * 2 ** exponent`. */
function exactParts(value: number): { readonly mantissa: bigint; readonly exponent: number } {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, Math.abs(value));
  const bits = view.getBigUint64(0);
  // The sign bit is 0 because of `Math.abs`. The exponent has the bias 1023, and the mantissa 52 bits after the binary point.
  const exponentBits = Number(bits >> 52n);
  const mantissa = (bits & 0xfffffffffffffn) | (exponentBits === 0 ? 0n : 1n << 52n);
  return { mantissa: value < 0 ? -mantissa : mantissa, exponent: Math.max(exponentBits, 1) - 1075 };
}

/** Returns `-value` or `+value`. */
export function applySign(operator: "-" | "+", value: TemplateValue): TemplateValue {
  if (value instanceof Undefined) return value.fail();
  if (isFloat(value)) return operator === "+" ? value : float(-(toNumber(value) as number));
  if (typeof value === "bigint") return operator === "+" ? value : -value;
  const result = operator === "-" ? arithmetic("*", value, -1) : arithmetic("+", value, 0);
  return result ?? typeError(`bad operand type for unary ${operator}: '${typeName(value)}'`);
}

/** Returns `int(text, base)`, or undefined where Python raises `ValueError`. */
export function parseInteger(text: string, base: number): number | bigint | undefined {
  if (base !== 0 && (base < 2 || base > 36)) valueError("int() base must be >= 2 and <= 36, or 0");
  const match = /^([+-]?)(0[xX]_?|0[oO]_?|0[bB]_?)?([0-9a-zA-Z]+(?:_[0-9a-zA-Z]+)*)$/.exec(decimalDigits(text));
  if (match === null) return undefined;
  const [, signText, prefix, digitText] = match as unknown as [string, string, string | undefined, string];
  const prefixLetter = prefix?.charAt(1).toLowerCase() ?? "";
  const prefixBase = { x: 16, o: 8, b: 2 }[prefixLetter];
  let digits = digitText.replaceAll("_", "");
  if (digits.length > MAX_DIGITS) return undefined;
  let radix = base;
  if (prefix !== undefined && prefixBase !== undefined) {
    if (base === 0 || base === prefixBase) radix = prefixBase;
    // In another base, the letter of the prefix may be a digit: `0b1` in base 16.
    else digits = prefix.replace("_", "") + digits;
  } else if (base === 0) {
    // Python refuses leading zeros here, because `017` was octal once.
    if (/^0+[1-9]/.test(digits)) return undefined;
    radix = 10;
  }
  let value = 0n;
  for (const digit of digits) {
    const digitValue = Number.parseInt(digit, 36);
    if (digitValue >= radix) return undefined;
    value = value * BigInt(radix) + BigInt(digitValue);
  }
  return int(signText === "-" ? -value : value);
}

/** Finite number in the syntax of `float(text)`, in lower case. */
const REAL = /^[+-]?(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:e[+-]?\d+(?:_\d+)*)?$/;

/** Returns `float(text)`, or undefined where Python raises `ValueError`. */
export function parseReal(text: string): number | undefined {
  const plain = decimalDigits(text).toLowerCase();
  if (REAL.test(plain)) return Number(plain.replaceAll("_", ""));
  const named = /^([+-]?)(inf|infinity|nan)$/.exec(plain);
  if (named === null) return undefined;
  const value = named[2] === "nan" ? Number.NaN : Number.POSITIVE_INFINITY;
  return named[1] === "-" ? -value : value;
}

/** Strips white space, and replaces the digits of other scripts by ASCII digits. */
function decimalDigits(text: string): string {
  return strip(text).replaceAll(/[^\0-\x7f]/gu, (point) => {
    if (!/\p{Nd}/u.test(point)) return point;
    const code = point.codePointAt(0) ?? 0;
    // The five sets of mathematical digits follow each other; every other script has one set, beginning with zero.
    if (code >= 0x1d7ce && code <= 0x1d7ff) return String((code - 0x1d7ce) % 10);
    let zero = code;
    while (/\p{Nd}/u.test(String.fromCodePoint(zero - 1))) zero--;
    return String(code - zero);
  });
}

/**
 * Returns a finite number with a fixed number of decimals, rounded half to even on its exact value as Python does.
 * `Number.prototype.toFixed` rounds ties up.
 */
export function fixed(value: number, decimals: number): string {
  const { mantissa, exponent } = exactParts(Math.abs(value));
  const scaled = mantissa * 10n ** BigInt(decimals);
  let rounded = scaled << BigInt(Math.max(0, exponent));
  if (exponent < 0) {
    const divisor = 1n << BigInt(-exponent);
    rounded = scaled / divisor;
    const doubledRemainder = (scaled % divisor) * 2n;
    if (doubledRemainder > divisor || (doubledRemainder === divisor && rounded % 2n === 1n)) rounded++;
  }
  const digits = rounded.toString().padStart(decimals + 1, "0");
  const text = decimals === 0 ? digits : `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
  return (value < 0 || Object.is(value, -0) ? "-" : "") + text;
}

/** Returns `round(value, digits)`. */
export function round(value: TemplateValue, digits: number): TemplateValue {
  const number = toNumber(value);
  if (number === undefined) return typeError(`type ${typeName(value)} doesn't define __round__ method`);
  // An integer has no decimals, and a float none beyond the 323rd that rounding could change.
  const isUnchanged = isFloat(value) ? !Number.isFinite(number) || digits > 323 : digits >= 0;
  if (isUnchanged) return typeof value === "boolean" ? number : value;
  if (digits < 0) return unsupported("`round` to fewer than 0 digits");
  return float(Number(fixed(number, digits)));
}
