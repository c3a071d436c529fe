/** Conversion of JSON text to values and back, as Python's module `json` does it. */

import { parseNestedJson } from "../../../base/util/json-size.ts";
import { TemplateFailure, typeError, unsupported } from "./errors.ts";
import { Meter } from "./meter.ts";
import { floatText, MAX_PRINT_NESTING } from "./print.ts";
import { compareText } from "./text.ts";
import { Dict, Float, float, fromJson, int, Markup, isTruthy, Tuple, typeName, type TemplateValue } from "./values.ts";

/** Bracket, comma, colon or scalar. */
const TOKEN = /\s*([{}[\],:]|"(?:[^"\\]|\\.)*"|[^\s{}[\],:"]+)/gy;

/**
 * Parses JSON without the losses of `JSON.parse`: `1.0` stays a float, an integer beyond 2**53 stays exact, and keys that look like
 * integers keep their position in an object.
 *
 * @throws SyntaxError if the text is not JSON.
 * @throws ArgumentError `E_ARGUMENT` for text that nests too deeply.
 */
export function parseJsonValue(text: string): TemplateValue {
  // Checks syntax and nesting. The reading below relies on both.
  parseNestedJson(text);
  const tokens = Array.from(text.matchAll(TOKEN), ([, token]) => token as string);
  let position = 0;
  const readValue = (): TemplateValue => {
    const token = tokens[position] as string;
    position++;
    switch (token) {
      case "{": {
        const dict = new Dict();
        while (tokens[position] !== "}") {
          const key = JSON.parse(tokens[position] as string) as string;
          // Passes the key and its colon.
          position += 2;
          dict.set(key, readValue());
          if (tokens[position] === ",") position++;
        }
        position++;
        return dict;
      }
      case "[": {
        const list: TemplateValue[] = [];
        while (tokens[position] !== "]") {
          list.push(readValue());
          if (tokens[position] === ",") position++;
        }
        position++;
        return list;
      }
      case "true":
        return true;
      case "false":
        return false;
      case "null":
        return null;
      default:
        if (token.startsWith('"')) return JSON.parse(token) as string;
        return /[.eE]/.test(token) ? float(Number(token)) : int(BigInt(token));
    }
  };
  return readValue();
}

/**
 * Returns `json.dumps(value, ensure_ascii=False)`.
 *
 * @throws TemplateFailure for a value without a notation in JSON, and for nesting beyond 500 levels.
 */
export function jsonText(value: unknown): string {
  return toJson(new Meter({ maxSteps: Infinity, maxTextLength: Infinity }), fromJson(value), jsonOptions([]));
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
      return meter.chargeResult(jsonString(meter, value, options.ensureAscii));
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
  if (value instanceof Markup) return meter.chargeResult(jsonString(meter, value.text, options.ensureAscii));
  meter.charge(1);
  if (depth > MAX_PRINT_NESTING) throw new TemplateFailure("RecursionError: a value is nested too deeply for `tojson`");
  const { indent, itemSeparator, keySeparator } = options;
  const wrap = <T>(open: string, items: readonly T[], close: string, textOf: (item: T) => string): string => {
    meter.charge(items.length);
    if (items.length === 0) return open + close;
    if (indent === undefined) return meter.chargeResult(open + meter.join(items, itemSeparator, textOf) + close);
    meter.checkLength(indent.length * (depth + 1) * items.length);
    const line = `\n${indent.repeat(depth + 1)}`;
    return meter.chargeResult(`${open}${line}${meter.join(items, itemSeparator + line, textOf)}\n${indent.repeat(depth)}${close}`);
  };
  if (Array.isArray(value) || value instanceof Tuple) {
    const items = value instanceof Tuple ? value.items : (value as readonly TemplateValue[]);
    return wrap("[", items, "]", (item) => toJson(meter, item, options, depth + 1));
  }
  if (value instanceof Dict) {
    let entries = value.entries();
    if (options.sortKeys) entries = entries.toSorted(([a], [b]) => compareKeys(a, b));
    return wrap("{", entries, "}", ([key, item]) => {
      const keyText = typeof key === "string" ? key : toJson(meter, key, options);
      return jsonString(meter, keyText, options.ensureAscii) + keySeparator + toJson(meter, item, options, depth + 1);
    });
  }
  return typeError(`Object of type ${typeName(value)} is not JSON serializable`);
}

/** Orders keys for `sort_keys`. */
function compareKeys(a: TemplateValue, b: TemplateValue): number {
  if (typeof a === "string" && typeof b === "string") return compareText(a, b);
  return unsupported("`tojson(sort_keys=true)` of keys that are not strings");
}

/** Returns a float in JSON, with the names of `json.dumps` for values that JSON lacks. */
function jsonFloat(value: number): string {
  if (Number.isFinite(value)) return floatText(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

/** Returns a text as a JSON string. As in `json.dumps`, lone surrogates stay as they are unless `ensureAscii` escapes them. */
function jsonString(meter: Meter, text: string, ensureAscii: boolean): string {
  const json = /\p{Cs}/u.test(text) ? withLoneSurrogates(text) : JSON.stringify(text);
  if (!ensureAscii) return json;
  let escapedLength = json.length;
  // An escape has six characters instead of one.
  for (let unit = 0; unit < json.length; unit++) if (json.charCodeAt(unit) >= 0x7f) escapedLength += 5;
  meter.checkLength(escapedLength);
  return json.replaceAll(/[\x7f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Returns the JSON of a text with lone surrogates, which `JSON.stringify` escapes, as they are. */
function withLoneSurrogates(text: string): string {
  return JSON.stringify(text).replaceAll(/\\(?:\\|u(d[89a-f][0-9a-f]{2}))/g, (whole, hex: string | undefined) =>
    hex === undefined ? whole : String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

/** Max spaces of one level of indentation. */
const MAX_INDENT = 1000;

/** Reads the options of `tojson` from its arguments, in order: `ensure_ascii`, `indent`, `separators`, `sort_keys`. */
export function jsonOptions(args: readonly (TemplateValue | undefined)[]): JsonOptions {
  const [ensureAscii, indent, separators, sortKeys] = args;
  const indentText = indentation(indent);
  const [itemSeparator, keySeparator] = separatorPair(separators) ?? [indentText === undefined ? ", " : ",", ": "];
  return {
    indent: indentText,
    itemSeparator,
    keySeparator,
    ensureAscii: ensureAscii !== undefined && isTruthy(ensureAscii),
    sortKeys: sortKeys !== undefined && isTruthy(sortKeys),
  };
}

/** Returns the text of one level of indentation for the argument `indent`; undefined for everything on one line. */
function indentation(indent: TemplateValue | undefined): string | undefined {
  if (indent === undefined || indent === null) return undefined;
  if (typeof indent === "string") return indent;
  if (typeof indent === "boolean") return indent ? " " : "";
  if (typeof indent === "number" && Number.isInteger(indent)) return " ".repeat(Math.max(0, Math.min(indent, MAX_INDENT)));
  return typeError("`tojson` expects an integer or a text as `indent`");
}

/** Returns the separators of items and keys for the argument `separators`; undefined if it is not given. */
function separatorPair(separators: TemplateValue | undefined): readonly [string, string] | undefined {
  if (separators === undefined || separators === null) return undefined;
  const pair = separators instanceof Tuple ? separators.items : separators;
  if (Array.isArray(pair) && pair.length === 2 && pair.every((part) => typeof part === "string")) return pair as [string, string];
  return typeError("`tojson` expects two texts as `separators`");
}
