/** Filters that convert a value to a text or a number. */

import { capitalize, CASING_COST } from "./casing.ts";
import { TemplateFailure, typeError, unsupported } from "./errors.ts";
import { formatPercent } from "./format.ts";
import { jsonOptions, toJson } from "./json.ts";
import type { Meter } from "./meter.ts";
import { parseInteger, parseReal, round, toNumber, toReal } from "./numbers.ts";
import { binary, valueLength } from "./operators.ts";
import { plainText, toText } from "./print.ts";
import { builtin, type Filter, textArgument } from "./signature.ts";
import { callStringMethod, replaceText, stripText } from "./string-methods.ts";
import { lengthOf, pointsOf, splitLines, WHITE_SPACE } from "./text.ts";
import {
  Dict,
  Float,
  float,
  integerArgument,
  isFloat,
  Markup,
  NO_KEYWORDS,
  orElse,
  isTruthy,
  Tuple,
  typeName,
  Undefined,
  type TemplateValue,
} from "./values.ts";

/** Max spaces that the filter `indent` puts before a line. */
const MAX_INDENT = 100_000;
/** Characters between the words of `title`, captured so that a split keeps them. */
const WORD_SEPARATOR = new RegExp(`([-${WHITE_SPACE}({\\[<]+)`);
const WORD = /[\p{L}\p{N}_]+/gu;

/** Returns a filter that converts a text; `cost` is its cost relative to a linear pass. */
const mapper = (map: (text: string) => string, cost = 1): Filter =>
  builtin("", (meter, value) => {
    const text = plainText(meter, value);
    meter.chargeText(text.length * cost);
    return meter.chargeResult(map(text));
  });

/** Returns each word with its first character in upper case and the rest in lower case. */
function titleWords(text: string): string {
  return text
    .split(WORD_SEPARATOR)
    .map((word) => {
      const [first = "", ...rest] = pointsOf(word);
      return first.toUpperCase() + rest.join("").toLowerCase();
    })
    .join("");
}

/** Returns a text with each line indented, except the first one unless `first` is true, and empty ones unless `blank` is true. */
function indent(
  meter: Meter,
  value: TemplateValue,
  width: TemplateValue | undefined,
  first: TemplateValue | undefined,
  blank: TemplateValue | undefined,
): string {
  const spaces = typeof width === "string" ? 0 : integerArgument(orElse(width, 4), "width");
  const indentation = typeof width === "string" ? width : " ".repeat(Math.max(0, Math.min(spaces, MAX_INDENT)));
  // As in Jinja, which thereby keeps a last line that is empty. The sum fails for values that are not texts.
  const text = binary(meter, "+", value, "\n");
  if (typeof text !== "string") return typeError(`indent expects a text, got ${typeName(value)}`);
  const lines = splitLines(text);
  meter.charge(lines.length);
  meter.checkLength(text.length + lines.length * indentation.length);
  let result: string;
  if (blank !== undefined && isTruthy(blank)) result = lines.join(`\n${indentation}`);
  else result = lines.map((line, at) => (at === 0 || line === "" ? line : indentation + line)).join("\n");
  return meter.chargeResult(first !== undefined && isTruthy(first) ? indentation + result : result);
}

/**
 * Returns a text of at most `length` code points including `end`, cut after a word unless `killWords`; unchanged if at most `leeway`
 * longer.
 */
function truncate(meter: Meter, value: TemplateValue, length: number, killWords: boolean, end: string, leeway: number): TemplateValue {
  const maxKept = length - lengthOf(end);
  if (maxKept < 0) throw new TemplateFailure(`AssertionError: expected length >= ${lengthOf(end)}, got ${length}`);
  if (leeway < 0) throw new TemplateFailure(`AssertionError: expected leeway >= 0, got ${leeway}`);
  const size = valueLength(meter, value);
  if (size === undefined) return typeError(`object of type '${typeName(value)}' has no len()`);
  if (size <= length + leeway) return value;
  const text = typeof value === "string" ? value : typeError(`truncate expects a text, got ${typeName(value)}`);
  meter.chargeSplit(text.length);
  const kept = pointsOf(text).slice(0, maxKept).join("");
  if (killWords) return kept + end;
  const lastSpace = kept.lastIndexOf(" ");
  return (lastSpace < 0 ? kept : kept.slice(0, lastSpace)) + end;
}

/** Returns `int(value, base)`; `otherwise` for a value without an integer. */
function toInteger(value: TemplateValue, otherwise: TemplateValue, base: number): TemplateValue {
  if (value instanceof Undefined) return value.fail();
  const truncated = (real: number): TemplateValue => {
    if (!Number.isFinite(real)) return otherwise;
    const whole = Math.trunc(real);
    // Adding 0 turns -0 to 0.
    return Number.isSafeInteger(whole) ? whole + 0 : BigInt(whole);
  };
  if (typeof value === "string") {
    const parsed = parseInteger(value, base);
    if (parsed !== undefined) return parsed;
    const real = parseReal(value);
    return real === undefined ? otherwise : truncated(real);
  }
  if (isFloat(value)) {
    const real = toNumber(value) as number;
    // Jinja returns the default for `ValueError` and `TypeError` alone. NaN raises the former, an infinity `OverflowError`.
    if (!Number.isFinite(real) && !Number.isNaN(real)) throw new TemplateFailure("OverflowError: cannot convert float infinity to integer");
    return truncated(real);
  }
  if (typeof value === "boolean") return value ? 1 : 0;
  return typeof value === "number" || typeof value === "bigint" ? value : otherwise;
}

/** Filters of this file by name. */
export const TEXT_FILTERS: Readonly<Record<string, Filter>> = {
  abs: builtin("", (meter, value) => {
    if (value instanceof Undefined) return value.fail();
    if (isFloat(value)) return float(Math.abs(toNumber(value) as number));
    if (typeof value === "boolean") return value ? 1 : 0;
    if (typeof value === "bigint") return value < 0n ? -value : value;
    return typeof value === "number" ? Math.abs(value) : typeError(`bad operand type for abs(): '${typeName(value)}'`);
  }),
  capitalize: mapper(capitalize, CASING_COST),
  center: builtin("width=", (meter, value, [width]) =>
    callStringMethod(meter, plainText(meter, value), "center", [orElse(width, 80)], NO_KEYWORDS),
  ),
  float: builtin("default=", (meter, value, [otherwise]) => {
    if (value instanceof Undefined) return value.fail();
    if (typeof value === "string") meter.chargeText(value.length * 2);
    const real = typeof value === "string" ? parseReal(value) : toReal(value);
    return real === undefined ? orElse(otherwise, new Float(0)) : float(real);
  }),
  format: (meter, value, args, keywords) => {
    if (args.length > 0 && keywords.size > 0) throw new TemplateFailure("can't handle positional and keyword arguments at the same time");
    return formatPercent(meter, plainText(meter, value), keywords.size > 0 ? new Dict(keywords) : new Tuple(args));
  },
  indent: builtin("width=, first=, blank=", (meter, value, [width, first, blank]) => indent(meter, value, width, first, blank)),
  int: builtin("default=, base=", (meter, value, [otherwise, base]) => {
    if (typeof value === "string") meter.chargeText(value.length * 2);
    return toInteger(value, orElse(otherwise, 0), base === undefined ? 10 : integerArgument(base, "base"));
  }),
  lower: mapper((text) => text.toLowerCase()),
  replace: builtin("old, new, count=", (meter, value, [old, replacement, limit]) =>
    replaceText(
      meter,
      toText(meter, value),
      toText(meter, old as TemplateValue),
      toText(meter, replacement as TemplateValue),
      limit === null ? undefined : limit,
    ),
  ),
  round: builtin("precision=, method=", (meter, value, [precision, method]) => {
    const digits = precision === undefined ? 0 : integerArgument(precision, "precision");
    if (method === undefined || method === "common") return value instanceof Undefined ? value.fail() : round(value, digits);
    if (method !== "ceil" && method !== "floor") throw new TemplateFailure("method must be common, ceil or floor");
    if (digits < 0 || digits > 300) return unsupported("`round` to fewer than 0 or more than 300 digits");
    const number = toReal(value);
    if (number === undefined) return typeError(`round expects a number, got ${typeName(value)}`);
    const scale = 10 ** digits;
    const scaled = method === "ceil" ? Math.ceil(number * scale) : Math.floor(number * scale);
    // Adding 0 turns -0 to 0: Python's `ceil` and `floor` return an `int`.
    return float((scaled + 0) / scale);
  }),
  safe: builtin("", (meter, value) => (value instanceof Markup ? value : new Markup(toText(meter, value)))),
  string: builtin("", (meter, value) => (value instanceof Markup ? value : toText(meter, value))),
  title: mapper(titleWords, 8),
  tojson: builtin("ensure_ascii=, indent=, separators=, sort_keys=", (meter, value, args) => toJson(meter, value, jsonOptions(args))),
  trim: builtin("chars=", (meter, value, [chars]) => stripText(meter, plainText(meter, value), "both", chars)),
  truncate: builtin("length=, killwords=, end=, leeway=", (meter, value, [length, killWords, end, leeway]) =>
    truncate(
      meter,
      value,
      length === undefined ? 255 : integerArgument(length, "length"),
      killWords !== undefined && isTruthy(killWords),
      end === undefined ? "..." : textArgument(end, "end"),
      leeway === undefined || leeway === null ? 5 : integerArgument(leeway, "leeway"),
    ),
  ),
  upper: mapper((text) => text.toUpperCase()),
  wordcount: builtin("", (meter, value) => {
    const text = toText(meter, value);
    meter.chargeText(text.length * 4);
    return text.match(WORD)?.length ?? 0;
  }),
};
