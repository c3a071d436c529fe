/** `str()`, `repr()` and `json.dumps()` of Python. */

import { TemplateFailure, typeError, unsupported } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { compareText } from "./text.ts";
import {
  Dict,
  DictView,
  Float,
  Markup,
  Namespace,
  type PyObject,
  Range,
  truth,
  Tuple,
  typeName,
  Undefined,
  type TemplateValue,
} from "./values.ts";

/** Max nesting of a printed value. */
const MAX_NESTING = 900;

/** Returns `str(value)`. */
export function toText(meter: Meter, value: TemplateValue): string {
  if (typeof value === "string") return value;
  if (value instanceof Undefined) return "";
  if (value instanceof Markup) return value.text;
  return repr(meter, value);
}

/**
 * Returns `repr(value)`.
 *
 * @throws TemplateUnsupported for values that Python prints with their address.
 */
export function repr(meter: Meter, value: TemplateValue, depth = 0): string {
  if (value === null) return "None";
  switch (typeof value) {
    case "boolean":
      return value ? "True" : "False";
    case "number":
      return Number.isInteger(value) ? String(value) : floatText(value);
    case "bigint":
      return value.toString();
    case "string":
      return meter.made(quoted(value));
    default:
      break;
  }
  if (value instanceof Float) return floatText(value.value);
  meter.charge(1);
  if (depth > MAX_NESTING) throw new TemplateFailure("RecursionError: a value is nested too deeply to be printed");
  const list = (items: readonly TemplateValue[]): string => {
    meter.charge(items.length);
    return meter.join(items, ", ", (item) => repr(meter, item, depth + 1));
  };
  if (Array.isArray(value)) return meter.made(`[${list(value as readonly TemplateValue[])}]`);
  if (value instanceof Tuple) return meter.made(value.items.length === 1 ? `(${list(value.items)},)` : `(${list(value.items)})`);
  if (value instanceof Dict) {
    const entry = ([key, item]: readonly [TemplateValue, TemplateValue]): string =>
      `${repr(meter, key, depth + 1)}: ${repr(meter, item, depth + 1)}`;
    return meter.made(`{${meter.join(value.entries(), ", ", entry)}}`);
  }
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Namespace) return `<Namespace ${repr(meter, value.attributes, depth + 1)}>`;
  if (value instanceof DictView) return meter.made(`${value.typeName}([${list(value.items)}])`);
  if (value instanceof Range) return `range(${value.start}, ${value.stop}${value.step === 1 ? "" : `, ${value.step}`})`;
  if (value instanceof Markup) return meter.made(`Markup(${quoted(value.text)})`);
  return (value as PyObject).print?.() ?? unsupported(`printing a value of type \`${typeName(value)}\``);
}

/** Returns `repr` of a float: the shortest digits that identify it, with an exponent below 10⁻⁴ and from 10¹⁶ on. */
export function floatText(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const [digits = "", exponentText = "0"] = value.toExponential().split("e");
  const exponent = Number(exponentText);
  if (value !== 0 && (exponent < -4 || exponent >= 16)) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const text = Object.is(value, -0) ? "-0" : String(value);
  return text.includes(".") ? text : `${text}.0`;
}

const SHORT_ESCAPES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

/**
 * Returns `repr` of a text: in double quotes if it contains only single quotes, else in single quotes; unprintable characters are escaped.
 */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text.replaceAll(/[\\\p{C}\p{Z}]|'/gu, (character) => {
    if (character === " ") return character;
    if (character === "'") return quote === "'" ? "\\'" : "'";
    const short = SHORT_ESCAPES[character];
    if (short !== undefined) return short;
    const code = character.codePointAt(0) ?? 0;
    const hex = code.toString(16);
    if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  });
  return quote + body + quote;
}

/** Options of {@link toJson}, as of `json.dumps`. */
export interface JsonOptions {
  /** Text of one level of indentation; undefined = everything on one line. */
  readonly indent: string | undefined;
  readonly itemSeparator: string;
  readonly keySeparator: string;
  readonly ensureAscii: boolean;
  readonly sortKeys: boolean;
}

/** Returns `json.dumps(value)`; the filter `tojson` does not escape HTML in chat templates. */
export function toJson(meter: Meter, value: TemplateValue, options: JsonOptions, depth = 0): string {
  switch (typeof value) {
    case "string":
      return meter.made(jsonText(meter, value, options.ensureAscii));
    case "boolean":
      return String(value);
    case "bigint":
      return value.toString();
    case "number":
      return Number.isInteger(value) ? String(value) : jsonFloat(value);
    default:
      break;
  }
  if (value === null) return "null";
  if (value instanceof Float) return jsonFloat(value.value);
  if (value instanceof Markup) return meter.made(jsonText(meter, value.text, options.ensureAscii));
  meter.charge(1);
  if (depth > MAX_NESTING) throw new TemplateFailure("RecursionError: a value is nested too deeply for `tojson`");
  const { indent, itemSeparator, keySeparator } = options;
  const wrap = <T>(open: string, items: readonly T[], close: string, textOf: (item: T) => string): string => {
    meter.charge(items.length);
    if (items.length === 0) return open + close;
    if (indent === undefined) return meter.made(open + meter.join(items, itemSeparator, textOf) + close);
    meter.checkLength(indent.length * (depth + 1) * items.length);
    const line = `\n${indent.repeat(depth + 1)}`;
    return meter.made(`${open}${line}${meter.join(items, itemSeparator + line, textOf)}\n${indent.repeat(depth)}${close}`);
  };
  if (Array.isArray(value) || value instanceof Tuple) {
    const items = value instanceof Tuple ? value.items : (value as readonly TemplateValue[]);
    return wrap("[", items, "]", (item) => toJson(meter, item, options, depth + 1));
  }
  if (value instanceof Dict) {
    let entries = value.entries();
    if (options.sortKeys) entries = entries.toSorted(([a], [b]) => compareKeys(a, b));
    return wrap(
      "{",
      entries,
      "}",
      ([key, item]) =>
        jsonText(meter, typeof key === "string" ? key : toJson(meter, key, options), options.ensureAscii) +
        keySeparator +
        toJson(meter, item, options, depth + 1),
    );
  }
  return typeError(`Object of type ${typeName(value)} is not JSON serializable`);
}

function compareKeys(a: TemplateValue, b: TemplateValue): number {
  if (typeof a === "string" && typeof b === "string") return compareText(a, b);
  return unsupported("`tojson(sort_keys=true)` of keys that are not strings");
}

function jsonFloat(value: number): string {
  if (Number.isFinite(value)) return floatText(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

/** Escapes as `json.dumps` does, which leaves lone surrogates as they are. */
function jsonText(meter: Meter, text: string, ensureAscii: boolean): string {
  const json = /\p{Cs}/u.test(text) ? loneSurrogates(text) : JSON.stringify(text);
  if (!ensureAscii) return json;
  let length = json.length;
  for (let at = 0; at < json.length; at++) if (json.charCodeAt(at) >= 0x7f) length += 5;
  meter.checkLength(length);
  return json.replaceAll(/[\x7f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Returns the JSON of a text with lone surrogates, which `JSON.stringify` escapes, as they are. */
function loneSurrogates(text: string): string {
  return JSON.stringify(text).replaceAll(/\\(?:\\|u(d[89a-f][0-9a-f]{2}))/g, (whole, hex: string | undefined) =>
    hex === undefined ? whole : String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

/** Returns `str(value)` for filters with a marked result for text marked by the filter `safe`, which is not supported. */
export function plainText(meter: Meter, value: TemplateValue): string {
  return value instanceof Markup ? unsupported("a filter of text marked by the filter `safe`") : toText(meter, value);
}

/** Max spaces of one level of indentation. */
const MAX_INDENT = 1000;

/** Reads the options of `tojson` from its arguments, in order: `ensure_ascii`, `indent`, `separators`, `sort_keys`. */
export function jsonOptions(args: readonly (TemplateValue | undefined)[]): JsonOptions {
  const [ensureAscii, indent, separators, sortKeys] = args;
  let indentText: string | undefined;
  if (typeof indent === "string") indentText = indent;
  else if (typeof indent === "number" && Number.isInteger(indent)) indentText = " ".repeat(Math.max(0, Math.min(indent, MAX_INDENT)));
  else if (typeof indent === "boolean") indentText = indent ? " " : "";
  else if (indent !== undefined && indent !== null) typeError("`tojson` expects an integer or a text as `indent`");
  let pair: readonly TemplateValue[] = [indentText === undefined ? ", " : ",", ": "];
  if (separators !== undefined && separators !== null) {
    pair = separators instanceof Tuple ? separators.items : Array.isArray(separators) ? (separators as readonly TemplateValue[]) : [];
    if (pair.length !== 2 || !pair.every((part) => typeof part === "string")) typeError("`tojson` expects two texts as `separators`");
  }
  return {
    indent: indentText,
    itemSeparator: pair[0] as string,
    keySeparator: pair[1] as string,
    ensureAscii: ensureAscii !== undefined && truth(ensureAscii),
    sortKeys: sortKeys !== undefined && truth(sortKeys),
  };
}
