/** Size checks of untrusted JSON texts before parsing. */
import { ArgumentError } from "../errors.ts";

/** Max levels of nested arrays and objects in untrusted JSON. Recursive code that walks values relies on this limit. */
export const MAX_JSON_DEPTH = 128;

/** ASCII codes of the characters that determine the structure of a JSON text. */
const [QUOTE, BACKSLASH, COMMA, OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x22, 0x5c, 0x2c, 0x5b, 0x5d, 0x7b, 0x7d];

/** Limits of a JSON text in addition to its length. */
export interface JsonLimit {
  /** Max levels of nested arrays and objects. */
  readonly depth: number;
  /** Max number of strings, numbers, booleans, nulls, arrays and objects together, without object keys. */
  readonly values: number;
  /** Max length of any string or key, in bytes as sent. */
  readonly stringBytes: number;
}

/** Returns the index of the closing quote of the string that opens before `start`; at least `bytes.length` if the string is not closed. */
function endOfString(bytes: Uint8Array, start: number): number {
  let index = start;
  // A backslash and the character after it are one escape.
  while (index < bytes.length && bytes[index] !== QUOTE) index += bytes[index] === BACKSLASH ? 2 : 1;
  return index;
}

/**
 * Checks nesting, the number of values and the longest string of a JSON text in one pass over its bytes, without parsing. Text that is not
 * JSON may pass.
 *
 * @throws ArgumentError `E_ARGUMENT` naming the exceeded limit.
 */
export function checkJsonSize(bytes: Uint8Array, { depth: maxDepth, values: maxValues, stringBytes }: JsonLimit): void {
  let depth = 0;
  // An opening bracket stands for the first value of its container, also of an empty one; each further value follows a comma.
  let values = 1;
  for (let index = 0; index < bytes.length; index++) {
    switch (bytes[index]) {
      case QUOTE: {
        const closingQuote = endOfString(bytes, index + 1);
        const length = closingQuote - index - 1;
        if (length > stringBytes) throw new ArgumentError(`Expected JSON strings of at most ${stringBytes} bytes, got one of ${length}`);
        index = closingQuote;
        break;
      }
      case OPEN_ARRAY:
      case OPEN_OBJECT:
        depth++;
        values++;
        if (depth > maxDepth) throw new ArgumentError(`Expected JSON nested at most ${maxDepth} levels deep, got more`);
        if (values > maxValues) throw tooManyValues(maxValues);
        break;
      case CLOSE_ARRAY:
      case CLOSE_OBJECT:
        depth--;
        break;
      case COMMA:
        values++;
        if (values > maxValues) throw tooManyValues(maxValues);
        break;
      default:
    }
  }
}

/** Returns the error for a text with too many values. */
function tooManyValues(max: number): ArgumentError {
  return new ArgumentError(`Expected a JSON body of at most ${max} values, got more`);
}

/**
 * Parses a JSON text that is a string inside a request, such as a tool call's arguments, or a line of training data.
 *
 * @throws SyntaxError for text that is not JSON.
 * @throws ArgumentError `E_ARGUMENT` for text nested more than {@link MAX_JSON_DEPTH} levels deep.
 */
export function parseNestedJson(text: string): unknown {
  // A text of at most `MAX_JSON_DEPTH` characters cannot nest deeper.
  if (text.length > MAX_JSON_DEPTH) checkJsonSize(Buffer.from(text), { depth: MAX_JSON_DEPTH, values: Infinity, stringBytes: Infinity });
  return JSON.parse(text) as unknown;
}
