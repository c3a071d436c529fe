/** Formatting of text as in Python: the operator `%` (`"%d" % 5`), and `str.format` (`"{:d}".format(5)`). */

import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { fixed, toNumber, toReal } from "./numbers.ts";
import { floatText, repr, toText } from "./print.ts";
import { lengthOf, unitAt } from "./text.ts";
import { Dict, isFloat, type Keywords, Tuple, typeName, type TemplateValue } from "./values.ts";

/** Max width or precision. */
const MAX_WIDTH = 10_000;

/** Bases of the format types of integers; 10 for other types. */
const RADIX: Readonly<Record<string, number>> = { x: 16, X: 16, o: 8, b: 2 };

/** Directive of `%`. Groups: name, flags, width, precision, type. */
const PERCENT = /%(?:\(([^)]*)\))?([-+ 0#]*)(\*|\d+)?(?:\.(\*|\d*))?[hlL]?(.?)/gs;

/** Directive of a format, such as `%-5d`. */
interface PercentDirective {
  /** Source of the directive, for messages. */
  readonly source: string;
  readonly flags: string;
  readonly precision: number | undefined;
  /** Letter of the format type. */
  readonly type: string;
}

/** Returns `template % values`. */
export function formatPercent(meter: Meter, template: string, values: TemplateValue): string {
  // In the worst case, each `%(` is searched for its end up to the end of the template.
  meter.charge(((template.split("%(").length + 1) * template.length) / 256);
  const items = values instanceof Tuple ? values.items : [values];
  const mapping = values instanceof Dict ? values : undefined;
  let usedItems = 0;
  const nextItem = (): TemplateValue => {
    if (usedItems >= items.length) return typeError("not enough arguments for format string");
    usedItems++;
    return items[usedItems - 1] as TemplateValue;
  };
  const namedItem = (name: string): TemplateValue => {
    if (mapping === undefined) return typeError("format requires a mapping");
    const found = mapping.get(name);
    if (found === undefined) throw new TemplateFailure(`KeyError: '${name}'`);
    return found;
  };
  const limited = limitedSum(meter);
  const text = template.replaceAll(
    PERCENT,
    (source, name: string | undefined, flags: string, width: string | undefined, precision: string | undefined, type: string) => {
      if (type === "%") return source === "%%" ? "%" : unsupported(`the format \`${source}\``);
      if (type === "") return valueError("incomplete format");
      if (width === "*" || precision === "*") return unsupported(`the format \`${source}\``);
      const value = name === undefined ? nextItem() : namedItem(name);
      const body = percentBody(meter, value, { source, flags, precision: precision === undefined ? undefined : Number(precision), type });
      const isLeftAligned = flags.includes("-");
      const isZeroPadded = flags.includes("0") && !isLeftAligned && type !== "s" && type !== "r";
      if (isZeroPadded) return limited(padded(meter, body, Number(width ?? 0), "=", "0"));
      return limited(padded(meter, body, Number(width ?? 0), isLeftAligned ? "<" : ">", " "));
    },
  );
  // A mapping may have values that no directive names.
  if (mapping === undefined && usedItems < items.length) return typeError("not all arguments converted during string formatting");
  return meter.chargeResult(text);
}

/** Returns a function that returns its text unchanged, and fails if all texts that it was called with are too long together. */
function limitedSum(meter: Meter): (text: string) => string {
  let length = 0;
  return (text) => {
    length += text.length;
    meter.checkLength(length);
    return text;
  };
}

/** Returns a value in a format of `%`, without padding. */
function percentBody(meter: Meter, value: TemplateValue, { source, flags, precision, type }: PercentDirective): string {
  if (flags.includes("#")) return unsupported(`the format \`${source}\``);
  if (type === "s" || type === "r") {
    const text = type === "s" ? toText(meter, value) : repr(meter, value);
    return precision === undefined ? text : text.slice(0, unitAt(text, precision));
  }
  const spaceOrNone = flags.includes(" ") ? " " : "";
  const plus = flags.includes("+") ? "+" : spaceOrNone;
  const number = toNumber(value);
  if (type === "f" || type === "F") {
    const real = toReal(value);
    if (real === undefined) return typeError(`must be real number, not ${typeName(value)}`);
    return signed(fixedText(real, precision ?? 6), plus);
  }
  if ("diuxXo".includes(type)) {
    if (number === undefined) return typeError(`%${type} format: a real number is required, not ${typeName(value)}`);
    if (isFloat(value) && "xXo".includes(type)) return typeError(`%${type} format: an integer is required, not float`);
    const digits = digitsOf(value, type);
    const minusLength = digits.startsWith("-") ? 1 : 0;
    if (precision !== undefined && precision > MAX_WIDTH) return unsupported(`a precision of more than ${MAX_WIDTH}`);
    return signed(digits.slice(0, minusLength) + digits.slice(minusLength).padStart(precision ?? 0, "0"), plus);
  }
  return unsupported(`the format \`${source}\``);
}

/** Returns `int(value)` of a number. */
function wholeOf(value: TemplateValue): bigint {
  if (typeof value === "bigint") return value;
  const number = toNumber(value) ?? 0;
  if (Number.isNaN(number)) return valueError("cannot convert float NaN to integer");
  if (!Number.isFinite(number)) throw new TemplateFailure("OverflowError: cannot convert float infinity to integer");
  return BigInt(Math.trunc(number));
}

/** Returns a number, truncated to an integer, in the base of a format type. */
function digitsOf(value: TemplateValue, type: string): string {
  const digits = wholeOf(value).toString(RADIX[type]);
  return type === "X" ? digits.toUpperCase() : digits;
}

/** Returns a number with a fixed number of decimals, as the format type `f` does. */
function fixedText(number: number, decimals: number): string {
  if (decimals > MAX_WIDTH) return unsupported(`a precision of more than ${MAX_WIDTH}`);
  return Number.isFinite(number) ? fixed(number, decimals) : floatText(number);
}

/** Puts `plus`, the sign of positive numbers in the format, in front of a number that is not negative. */
function signed(text: string, plus: string): string {
  return text.startsWith("-") ? text : plus + text;
}

/**
 * Pads a text to a width.
 *
 * @param align - Position of the text: `<` left, `>` right, `^` centered, `=` with the padding between sign and digits.
 * @param fill - Character to pad with.
 */
function padded(meter: Meter, text: string, width: number, align: string, fill: string): string {
  if (width > MAX_WIDTH) return unsupported(`a width of more than ${MAX_WIDTH}`);
  const missing = width - lengthOf(text);
  if (missing <= 0) return text;
  meter.checkLength(missing + text.length);
  switch (align) {
    case "<":
      return text + fill.repeat(missing);
    case "^":
      return fill.repeat(Math.floor(missing / 2)) + text + fill.repeat(Math.ceil(missing / 2));
    case "=": {
      const signLength = /^[+\- ]/.test(text) ? 1 : 0;
      return text.slice(0, signLength) + fill.repeat(missing) + text.slice(signLength);
    }
    default:
      return fill.repeat(missing) + text;
  }
}

/** Format specification of `str.format`. Groups: fill, align, sign, `#`, `0`, width, separator of thousands, precision, type. */
const SPEC = /^(?:([^]?)([<>=^]))?([-+ ])?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/u;

/** Returns `template.format(*args, **keywords)`. Field names are positions and names, without attributes and indices. */
export function formatBraces(meter: Meter, template: string, args: readonly TemplateValue[], keywords: Keywords): string {
  meter.chargeText(template.length);
  let usedArgs = 0;
  const positionalValue = (position: string): TemplateValue => {
    const value = args[position === "" ? usedArgs : Number(position)];
    if (position === "") usedArgs++;
    if (value === undefined) throw new TemplateFailure("IndexError: Replacement index out of range for positional args tuple");
    return value;
  };
  const keywordValue = (name: string): TemplateValue => {
    const value = keywords.get(name);
    if (value === undefined) throw new TemplateFailure(`KeyError: '${name}'`);
    return value;
  };
  const limited = limitedSum(meter);
  const text = template.replaceAll(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (source, field: string | undefined) => {
    if (source === "{{" || source === "}}") return source.charAt(0);
    if (field === undefined) return unsupported("`format` with nested or single braces");
    const match = /^([^!:]*)(?:!([rsa]))?(?::(.*))?$/s.exec(field);
    const [, name = "", conversion, spec = ""] = match ?? unsupported(`the format field \`${source}\``);
    if (/[.[]/.test(name)) return unsupported(`the format field \`${source}\``);
    const value = /^\d*$/.test(name) ? positionalValue(name) : keywordValue(name);
    if (conversion === "a") return unsupported("the conversion `!a`");
    if (conversion === undefined) return limited(formatValue(meter, value, spec));
    return limited(formatValue(meter, conversion === "r" ? repr(meter, value) : toText(meter, value), spec));
  });
  return meter.chargeResult(text);
}

/** Format specification of `str.format`, without the padding. Parts that the specification does not have are undefined. */
interface FormatSpec {
  /** Source of the specification, for messages. */
  readonly source: string;
  /** Position of the text: `<`, `>`, `^` or `=`, as in {@link padded}. */
  readonly align: string | undefined;
  /** Sign of positive numbers: `+` or a space; `-` for none. */
  readonly plus: string | undefined;
  /** `0`, which fills a number with zeros after its sign. */
  readonly zero: string | undefined;
  /** Separator of thousands: `,` or `_`. */
  readonly group: string | undefined;
  readonly precision: number | undefined;
  /** Letter of the format type, or `%`. */
  readonly type: string | undefined;
}

/** Returns `format(value, source)`. */
function formatValue(meter: Meter, value: TemplateValue, source: string): string {
  if (source === "") return toText(meter, value);
  const match = SPEC.exec(source);
  if (match === null) return unsupported(`the format specification \`${source}\``);
  const [, fill, align, plus, alternate, zero, width, group, precisionText, type] = match;
  if (alternate !== undefined) return unsupported(`the format specification \`${source}\``);
  const precision = precisionText === undefined ? undefined : Number(precisionText);
  const spec: FormatSpec = { source, align, plus, zero, group, precision, type };
  const isText = typeof value === "string";
  const body = isText ? textBody(value, spec) : numberBody(value, spec);
  const numberAlign = zero === undefined ? ">" : "=";
  const defaultAlign = isText ? "<" : numberAlign;
  // With an alignment, the pattern also matches an empty fill character.
  const hasFill = fill !== undefined && fill !== "";
  const defaultFill = zero === undefined || align !== undefined ? " " : "0";
  return padded(meter, body, Number(width ?? 0), align ?? defaultAlign, hasFill ? fill : defaultFill);
}

/** Returns a text in a format of `str.format`, without padding. */
function textBody(text: string, { source, align, plus, zero, group, precision, type }: FormatSpec): string {
  const isSupported =
    (type === undefined || type === "s") && plus === undefined && group === undefined && zero === undefined && align !== "=";
  if (!isSupported) return unsupported(`the format specification \`${source}\` of a str`);
  return precision === undefined ? text : text.slice(0, unitAt(text, precision));
}

/** Returns a number in a format of `str.format`, with its sign and separators, without padding. */
function numberBody(value: TemplateValue, spec: FormatSpec): string {
  const { source, plus, zero, group, type } = spec;
  const number = type !== undefined && "fF%".includes(type) ? toReal(value) : toNumber(value);
  // Without a type, Python prints a boolean as text.
  if (number === undefined || (typeof value === "boolean" && type === undefined)) {
    return unsupported(`the format specification \`${source}\` of a value of type \`${typeName(value)}\``);
  }
  let body = plainNumber(value, number, spec);
  if (group !== undefined) {
    if (zero !== undefined) return unsupported(`the format specification \`${source}\``);
    body = body.replace(/^-?\d+/, (digits) => digits.replaceAll(/\B(?=(\d{3})+$)/g, group));
  }
  return signed(body, plus === "-" || plus === undefined ? "" : plus);
}

/** Returns a number in the format type and precision of `str.format`; `number` is `value` as a JavaScript number. */
function plainNumber(value: TemplateValue, number: number, { source, precision, type }: FormatSpec): string {
  switch (type) {
    case "f":
    case "F":
      return fixedText(number, precision ?? 6);
    case "%":
      return `${fixedText(number * 100, precision ?? 6)}%`;
    case undefined:
    case "d":
    case "x":
    case "X":
    case "o":
    case "b": {
      if (isFloat(value) || precision !== undefined) return unsupported(`the format specification \`${source}\` of a ${typeName(value)}`);
      return digitsOf(value, type ?? "d");
    }
    default:
      return unsupported(`the format specification \`${source}\``);
  }
}
