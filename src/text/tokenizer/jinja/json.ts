/** Conversion of JSON text to values and back, as Python's module `json` does it. */

import { parseNestedJson } from "../../../base/util/json-size.ts";
import { Meter } from "./meter.ts";
import { jsonOptions, toJson } from "./print.ts";
import { Dict, float, fromJson, int, type TemplateValue } from "./values.ts";

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
  // Checks syntax and nesting, so that the rest can rely on them.
  parseNestedJson(text);
  const tokens = Array.from(text.matchAll(TOKEN), ([, token]) => token as string);
  let at = 0;
  const value = (): TemplateValue => {
    const token = tokens[at++] as string;
    switch (token) {
      case "{": {
        const dict = new Dict();
        while (tokens[at] !== "}") {
          const key = JSON.parse(tokens[at] as string) as string;
          at += 2;
          dict.set(key, value());
          if (tokens[at] === ",") at++;
        }
        at++;
        return dict;
      }
      case "[": {
        const list: TemplateValue[] = [];
        while (tokens[at] !== "]") {
          list.push(value());
          if (tokens[at] === ",") at++;
        }
        at++;
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
  return value();
}

/**
 * Returns `json.dumps(value, ensure_ascii=False)`.
 *
 * @throws TemplateFailure for a value without a notation in JSON, and for nesting beyond 500 levels.
 */
export function jsonText(value: unknown): string {
  return toJson(new Meter({ maxSteps: Infinity, maxTextLength: Infinity }), fromJson(value), jsonOptions([]));
}
