/** Texts of values, as `str()` and `repr()` of Python return them. */

import { TemplateFailure, unsupported } from "./errors.ts";
import type { Meter } from "./meter.ts";
import {
  Dict,
  DictView,
  Float,
  Markup,
  Namespace,
  type PyObject,
  Range,
  Tuple,
  typeName,
  Undefined,
  type TemplateValue,
} from "./values.ts";

/** Max nesting of a printed value. */
export const MAX_PRINT_NESTING = 900;

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
      return meter.chargeResult(quoted(value));
    default:
      break;
  }
  if (value instanceof Float) return floatText(value.value);
  meter.charge(1);
  if (depth > MAX_PRINT_NESTING) throw new TemplateFailure("RecursionError: a value is nested too deeply to be printed");
  const itemTexts = (items: readonly TemplateValue[]): string => {
    meter.charge(items.length);
    return meter.join(items, ", ", (item) => repr(meter, item, depth + 1));
  };
  if (Array.isArray(value)) return meter.chargeResult(`[${itemTexts(value as readonly TemplateValue[])}]`);
  if (value instanceof Tuple)
    return meter.chargeResult(value.items.length === 1 ? `(${itemTexts(value.items)},)` : `(${itemTexts(value.items)})`);
  if (value instanceof Dict) {
    const entry = ([key, item]: readonly [TemplateValue, TemplateValue]): string =>
      `${repr(meter, key, depth + 1)}: ${repr(meter, item, depth + 1)}`;
    return meter.chargeResult(`{${meter.join(value.entries(), ", ", entry)}}`);
  }
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Namespace) return `<Namespace ${repr(meter, value.attributes, depth + 1)}>`;
  if (value instanceof DictView) return meter.chargeResult(`${value.typeName}([${itemTexts(value.items)}])`);
  if (value instanceof Range) return `range(${value.start}, ${value.stop}${value.step === 1 ? "" : `, ${value.step}`})`;
  if (value instanceof Markup) return meter.chargeResult(`Markup(${quoted(value.text)})`);
  return (value as PyObject).print?.() ?? unsupported(`printing a value of type \`${typeName(value)}\``);
}

/** Returns `repr` of a float: the shortest digits that identify it, with an exponent below 10⁻⁴ and from 10¹⁶ on. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
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
    const shortEscape = SHORT_ESCAPES[character];
    if (shortEscape !== undefined) return shortEscape;
    const code = character.codePointAt(0) ?? 0;
    const hex = code.toString(16);
    if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  });
  return quote + body + quote;
}

/** Returns `str(value)` for filters with a marked result for text marked by the filter `safe`, which is not supported. */
export function plainText(meter: Meter, value: TemplateValue): string {
  return value instanceof Markup ? unsupported("a filter of text marked by the filter `safe`") : toText(meter, value);
}
