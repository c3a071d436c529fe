/** Formatting of text as in Python: the operator `%` (`"%d" % 5`), and `str.format` (`"{:d}".format(5)`). */

import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { fixed, toNumber, toReal } from "./numbers.ts";
import { repr, toText } from "./print.ts";
import { lengthOf, unitAt } from "./text.ts";
import { Dict, isFloat, type Keywords, Tuple, typeName, type TemplateValue } from "./values.ts";

/** Max width or precision. */
const MAX_WIDTH = 10_000;

/** Bases of the format types of integers; 10 for other types. */
const RADIX: Readonly<Record<string, number>> = { x: 16, X: 16, o: 8, b: 2 };

/** Format of `%`. Groups: name, flags, width, precision, type. */
const PERCENT = /%(?:\(([^)]*)\))?([-+ 0#]*)(\*|\d+)?(?:\.(\*|\d*))?[hlL]?(.?)/gs;

/** Returns `template % values`. */
export function formatPercent(meter: Meter, template: string, values: TemplateValue): string {
  // In the worst case, each `%(` is searched for its end up to the end of the template.
  meter.charge(((template.split("%(").length + 1) * template.length) / 256);
  const items = values instanceof Tuple ? values.items : [values];
  const mapping = values instanceof Dict ? values : undefined;
  let next = 0;
  const nextItem = (): TemplateValue => {
    if (next >= items.length) return typeError("not enough arguments for format string");
    return items[next++] as TemplateValue;
  };
  let isNamed = false;
  const limited = limitedSum(meter);
  const text = template.replaceAll(
    PERCENT,
    (whole, name: string | undefined, flags: string, width: string | undefined, precision: string | undefined, type: string) => {
      if (type === "%") return whole === "%%" ? "%" : unsupported(`the format \`${whole}\``);
      if (type === "") return valueError("incomplete format");
      if (width === "*" || precision === "*") return unsupported(`the format \`${whole}\``);
      let value: TemplateValue;
      if (name === undefined) value = nextItem();
      else {
        if (mapping === undefined) return typeError("format requires a mapping");
        isNamed = true;
        const found = mapping.get(name);
        if (found === undefined) throw new TemplateFailure(`KeyError: '${name}'`);
        value = found;
      }
      const body = percentBody(meter, value, type, flags, precision === undefined ? undefined : Number(precision), whole);
      return limited(
        padded(
          meter,
          body,
          Number(width ?? 0),
          flags.includes("-") ? "<" : flags.includes("0") && type !== "s" && type !== "r" ? "=" : ">",
          flags.includes("0") && !flags.includes("-") && type !== "s" && type !== "r" ? "0" : " ",
        ),
      );
    },
  );
  if (!isNamed && mapping === undefined && next < items.length) return typeError("not all arguments converted during string formatting");
  return meter.made(text);
}

/** Returns a function that returns its text unchanged, and fails as soon as the texts so far are too long together. */
function limitedSum(meter: Meter): (text: string) => string {
  let length = 0;
  return (text) => {
    length += text.length;
    meter.checkLength(length);
    return text;
  };
}

/** Returns a value in a format of `%`, without padding. */
function percentBody(
  meter: Meter,
  value: TemplateValue,
  type: string,
  flags: string,
  precision: number | undefined,
  whole: string,
): string {
  if (flags.includes("#")) return unsupported(`the format \`${whole}\``);
  if (type === "s" || type === "r") {
    const text = type === "s" ? toText(meter, value) : repr(meter, value);
    return precision === undefined ? text : text.slice(0, unitAt(text, precision));
  }
  const plus = flags.includes("+") ? "+" : flags.includes(" ") ? " " : "";
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
    const minus = digits.startsWith("-") ? 1 : 0;
    if (precision !== undefined && precision > MAX_WIDTH) return unsupported(`a precision of more than ${MAX_WIDTH}`);
    return signed(digits.slice(0, minus) + digits.slice(minus).padStart(precision ?? 0, "0"), plus);
  }
  return unsupported(`the format \`${whole}\``);
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
  if (Number.isFinite(number)) return fixed(number, decimals);
  return Number.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

/** Puts `plus` in front of a number that is not negative. */
function signed(text: string, plus: string): string {
  return text.startsWith("-") ? text : plus + text;
}

/** Pads a text to a width, by alignment: `<` left, `>` right, `^` centered, `=` with the padding between sign and digits. */
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
      const at = /^[+\- ]/.test(text) ? 1 : 0;
      return text.slice(0, at) + fill.repeat(missing) + text.slice(at);
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
  let next = 0;
  const limited = limitedSum(meter);
  const text = template.replaceAll(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g, (whole, field: string | undefined) => {
    if (whole === "{{" || whole === "}}") return whole.charAt(0);
    if (field === undefined) return unsupported("`format` with nested or single braces");
    const match = /^([^!:]*)(?:!([rsa]))?(?::(.*))?$/s.exec(field);
    const [, name = "", conversion, spec = ""] = match ?? unsupported(`the format field \`${whole}\``);
    let value: TemplateValue | undefined;
    if (name === "" || /^\d+$/.test(name)) {
      value = args[name === "" ? next++ : Number(name)];
      if (value === undefined) throw new TemplateFailure("IndexError: Replacement index out of range for positional args tuple");
    } else {
      if (/[.[]/.test(name)) return unsupported(`the format field \`${whole}\``);
      value = keywords.get(name);
      if (value === undefined) throw new TemplateFailure(`KeyError: '${name}'`);
    }
    if (conversion === "a") return unsupported("the conversion `!a`");
    if (conversion !== undefined) value = conversion === "r" ? repr(meter, value) : toText(meter, value);
    return limited(formatValue(meter, value, spec));
  });
  return meter.made(text);
}

/** Returns `format(value, spec)`. */
function formatValue(meter: Meter, value: TemplateValue, spec: string): string {
  if (spec === "") return toText(meter, value);
  const match = SPEC.exec(spec);
  if (match === null) return unsupported(`the format specification \`${spec}\``);
  const [, fill, align, plus, alternate, zero, width, group, precision, type] = match;
  if (alternate !== undefined) return unsupported(`the format specification \`${spec}\``);
  const isReal = type !== undefined && "fF%".includes(type);
  const number = typeof value === "boolean" && type === undefined ? undefined : isReal ? toReal(value) : toNumber(value);
  let body: string;
  let side: string;
  if (typeof value === "string") {
    if ((type !== undefined && type !== "s") || plus !== undefined || group !== undefined)
      return unsupported(`the format specification \`${spec}\` of a str`);
    body = precision === undefined ? value : value.slice(0, unitAt(value, Number(precision)));
    side = align ?? "<";
    if (zero !== undefined || align === "=") return unsupported(`the format specification \`${spec}\` of a str`);
  } else if (number === undefined) return unsupported(`the format specification \`${spec}\` of a value of type \`${typeName(value)}\``);
  else {
    body = numberBody(value, number, type, precision === undefined ? undefined : Number(precision), spec);
    if (group !== undefined) {
      if (zero !== undefined) return unsupported(`the format specification \`${spec}\``);
      body = body.replace(/^-?\d+/, (digits) => digits.replaceAll(/\B(?=(\d{3})+$)/g, group));
    }
    body = signed(body, plus === "-" || plus === undefined ? "" : plus);
    side = align ?? (zero === undefined ? ">" : "=");
  }
  return padded(
    meter,
    body,
    Number(width ?? 0),
    side,
    fill === undefined || fill === "" ? (zero === undefined || align !== undefined ? " " : "0") : fill,
  );
}

/** Returns a number in a format of `str.format`, without separators and padding. */
function numberBody(value: TemplateValue, number: number, type: string | undefined, precision: number | undefined, spec: string): string {
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
      if (isFloat(value) || precision !== undefined) return unsupported(`the format specification \`${spec}\` of a ${typeName(value)}`);
      return digitsOf(value, type ?? "d");
    }
    default:
      return unsupported(`the format specification \`${spec}\``);
  }
}
