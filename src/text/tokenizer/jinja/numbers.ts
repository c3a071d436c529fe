/** Arithmetic of Python: exact integers, floats, and the signs of `//` and `%`. */

import { TemplateFailure, TemplateLimitReached, typeError, unsupported, valueError } from "./errors.ts";
import { strip } from "./text.ts";
import { Float, float, int, isFloat, typeName, Undefined, type TemplateValue } from "./values.ts";

/** Bits of an integer that a template can make. */
const MAX_BITS = 4096;

/** Digits of a text that Python reads as an integer, at most. */
export const MAX_DIGITS = 4300;

/** Number of a template: an integer, or a float as a number with a flag. */
type Numeric = { readonly whole: bigint } | { readonly real: number };

function numericOf(value: TemplateValue): Numeric | undefined {
  switch (typeof value) {
    case "boolean":
      return { whole: value ? 1n : 0n };
    case "bigint":
      return { whole: value };
    case "number":
      return Number.isInteger(value) ? { whole: BigInt(value) } : { real: value };
    default:
      return value instanceof Float ? { real: value.value } : undefined;
  }
}

/** Converts a value to a JavaScript number; undefined for other values than numbers. */
export function toNumber(value: TemplateValue): number | undefined {
  const numeric = numericOf(value);
  if (numeric === undefined) return undefined;
  return "real" in numeric ? numeric.real : Number(numeric.whole);
}

/**
 * Returns `float(value)` of a number; undefined for other values.
 *
 * @throws TemplateFailure when an `int` is too large for a `float`.
 */
export function toReal(value: TemplateValue): number | undefined {
  return typeof value === "bigint" ? realOf(value) : toNumber(value);
}

/** Arithmetic operators. */
export type Arithmetic = "+" | "-" | "*" | "/" | "//" | "%" | "**";

/** Applies an operator to two numbers; undefined if one of the values is not a number. */
export function arithmetic(operator: Arithmetic, left: TemplateValue, right: TemplateValue): TemplateValue | undefined {
  const a = numericOf(left);
  const b = numericOf(right);
  if (a === undefined || b === undefined) return undefined;
  if ("whole" in a && "whole" in b) return wholeArithmetic(operator, a.whole, b.whole);
  return float(realArithmetic(operator, "real" in a ? a.real : realOf(a.whole), "real" in b ? b.real : realOf(b.whole)));
}

function realOf(whole: bigint): number {
  const real = Number(whole);
  if (!Number.isFinite(real)) throw new TemplateFailure("OverflowError: int too large to convert to float");
  return real;
}

/** Divides integers, rounded once: the quotient has more bits than a float, and the last one says whether there is a rest. */
function quotient(a: bigint, b: bigint): number {
  if (typeof int(a) === "number" && typeof int(b) === "number") return Number(a) / Number(b);
  if (a === 0n) return b < 0n ? -0 : 0;
  const shift = BigInt(Math.max(0, 66 - a.toString(2).length + b.toString(2).length));
  const scaled = a << shift;
  const whole = scaled / b;
  const sticky = scaled % b === 0n ? 0n : scaled < 0n !== b < 0n ? -1n : 1n;
  // Dividing by a power of two beyond the range of floats takes two steps; only the second can round.
  const steps = Number(shift) + 1;
  const first = Math.min(steps, 1000);
  return realOf(whole * 2n + sticky) / 2 ** first / 2 ** (steps - first);
}

/** Exponents of a float, at most. */
const MAX_EXPONENT = 64;

/** Raises a finite float to an integer, rounded once. `**` of JavaScript is off by a bit for some. */
function power(base: number, exponent: number): number {
  if (base === 0 || Math.abs(exponent) > MAX_EXPONENT) {
    return base === 0 ? base ** exponent : unsupported(`\`**\` of a float with an exponent beyond ${MAX_EXPONENT}`);
  }
  const { mantissa, scale } = partsOf(base);
  const times = BigInt(Math.abs(exponent));
  const [raised, shift] = [mantissa ** times, BigInt(Math.abs(scale)) * times];
  const [above, below] = scale < 0 ? [raised, 1n << shift] : [raised << shift, 1n];
  return exponent < 0 ? quotient(below, above) : quotient(above, below);
}

/** Returns integers of which a finite float is `mantissa · 2 ** scale`. */
function partsOf(value: number): { readonly mantissa: bigint; readonly scale: number } {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, Math.abs(value));
  const bits = view.getBigUint64(0);
  const field = Number(bits >> 52n);
  const mantissa = (bits & 0xfffffffffffffn) | (field === 0 ? 0n : 1n << 52n);
  return { mantissa: value < 0 ? -mantissa : mantissa, scale: Math.max(field, 1) - 1075 };
}

function wholeArithmetic(operator: Arithmetic, a: bigint, b: bigint): TemplateValue {
  switch (operator) {
    case "+":
      return limited(a + b);
    case "-":
      return limited(a - b);
    case "*":
      return limited(a * b);
    case "/":
      if (b === 0n) throw new TemplateFailure("ZeroDivisionError: division by zero");
      return float(quotient(a, b));
    case "//":
    case "%": {
      if (b === 0n) throw new TemplateFailure("ZeroDivisionError: integer division or modulo by zero");
      const remainder = a % b;
      const isOff = remainder !== 0n && remainder < 0n !== b < 0n;
      if (operator === "%") return int(isOff ? remainder + b : remainder);
      return int(isOff ? a / b - 1n : a / b);
    }
    case "**":
      if (b < 0n) {
        if (a === 0n) throw new TemplateFailure("ZeroDivisionError: 0.0 cannot be raised to a negative power");
        return float(power(realOf(a), Number(b)));
      }
      if (BigInt(a.toString(2).length) * b > BigInt(MAX_BITS) && a !== 0n && a !== 1n && a !== -1n) tooLarge();
      return int(a === 1n ? 1n : a === -1n ? (b % 2n === 0n ? 1n : -1n) : a === 0n ? (b === 0n ? 1n : 0n) : a ** b);
  }
}

function limited(value: bigint): TemplateValue {
  const result = int(value);
  if (typeof result === "bigint" && result.toString(16).length * 4 > MAX_BITS) tooLarge();
  return result;
}

function tooLarge(): never {
  throw new TemplateLimitReached(`it made an integer of more than ${MAX_BITS} bits`);
}

function realArithmetic(operator: Arithmetic, a: number, b: number): number {
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      if (b === 0) throw new TemplateFailure("ZeroDivisionError: float division by zero");
      return a / b;
    case "//":
    case "%": {
      if (b === 0) throw new TemplateFailure(`ZeroDivisionError: float ${operator === "%" ? "modulo" : "floor division by zero"}`);
      let remainder = a % b;
      if (remainder !== 0) {
        if (b < 0 !== remainder < 0) remainder += b;
      } else remainder = b < 0 ? -0 : 0;
      if (operator === "%") return remainder;
      const quotient = (a - remainder) / b;
      if (quotient === 0) return a / b < 0 || Object.is(a / b, -0) ? -0 : 0;
      const whole = Math.floor(quotient);
      return quotient - whole > 0.5 ? whole + 1 : whole;
    }
    case "**":
      if (a === 0 && b < 0) throw new TemplateFailure("ZeroDivisionError: 0.0 cannot be raised to a negative power");
      if (a < 0 && !Number.isInteger(b) && Number.isFinite(b)) return unsupported("a complex number");
      // JavaScript makes NaN of these, Python 1.0.
      if (a === 1 || (a === -1 && !Number.isFinite(b) && !Number.isNaN(b))) return 1;
      if (!Number.isFinite(a) || !Number.isFinite(b)) return a ** b;
      if (Number.isInteger(b)) return power(a, b);
      return b === 0.5 ? Math.sqrt(a) : unsupported("`**` with a fraction other than 0.5");
  }
}

/** Returns `-value` or `+value`. */
export function sign(operator: "-" | "+", value: TemplateValue): TemplateValue {
  if (value instanceof Undefined) return value.fail();
  if (isFloat(value)) return operator === "+" ? value : float(-(toNumber(value) as number));
  const result = arithmetic(operator === "-" ? "*" : "+", value, operator === "-" ? -1 : 0);
  return result ?? typeError(`bad operand type for unary ${operator}: '${typeName(value)}'`);
}

/** Returns `int(text, base)`, or undefined where Python raises `ValueError`. */
export function parseInteger(text: string, base: number): number | bigint | undefined {
  if (base !== 0 && (base < 2 || base > 36)) valueError("int() base must be >= 2 and <= 36, or 0");
  const match = /^([+-]?)(0[xX]_?|0[oO]_?|0[bB]_?)?([0-9a-zA-Z]+(?:_[0-9a-zA-Z]+)*)$/.exec(decimalDigits(text));
  if (match === null) return undefined;
  const [, minus, prefix, raw] = match as unknown as [string, string, string | undefined, string];
  const prefixBase = { x: 16, o: 8, b: 2 }[prefix?.[1]?.toLowerCase() ?? ""];
  let digits = raw.replaceAll("_", "");
  if (digits.length > MAX_DIGITS) return undefined;
  let radix = base;
  if (prefix !== undefined && prefixBase !== undefined) {
    if (base === 0 || base === prefixBase) radix = prefixBase;
    else digits = prefix.replace("_", "") + digits;
  } else if (base === 0) {
    if (/^0+[1-9]/.test(digits)) return undefined;
    radix = 10;
  }
  let value = 0n;
  for (const digit of digits) {
    const step = Number.parseInt(digit, 36);
    if (step >= radix) return undefined;
    value = value * BigInt(radix) + BigInt(step);
  }
  return int(minus === "-" ? -value : value);
}

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

/** Strips white space, and makes ASCII digits of the digits of every script. */
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
  const { mantissa, scale: exponent } = partsOf(Math.abs(value));
  const scaled = mantissa * 10n ** BigInt(decimals);
  let whole = scaled << BigInt(Math.max(0, exponent));
  if (exponent < 0) {
    const divisor = 1n << BigInt(-exponent);
    whole = scaled / divisor;
    const twice = (scaled % divisor) * 2n;
    if (twice > divisor || (twice === divisor && whole % 2n === 1n)) whole++;
  }
  const digits = whole.toString().padStart(decimals + 1, "0");
  const text = decimals === 0 ? digits : `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
  return (value < 0 || Object.is(value, -0) ? "-" : "") + text;
}

/** Returns `round(value, digits)`. */
export function round(value: TemplateValue, digits: number): TemplateValue {
  if (isFloat(value)) {
    const number = toNumber(value) as number;
    if (!Number.isFinite(number)) return value;
    if (digits < 0) return unsupported("rounding a float to fewer than 0 digits");
    return digits > 323 ? value : float(Number(fixed(number, digits)));
  }
  const numeric = numericOf(value);
  if (numeric === undefined || "real" in numeric) return typeError(`type ${typeName(value)} doesn't define __round__ method`);
  if (digits >= 0) return int(numeric.whole);
  const unit = 10n ** BigInt(Math.min(-digits, 400));
  const half = unit / 2n;
  let rest = numeric.whole % unit;
  if (rest < 0n) rest += unit;
  const floor = numeric.whole - rest;
  const up = rest > half || (rest === half && (floor / unit) % 2n !== 0n);
  return int(up ? floor + unit : floor);
}
