/**
 * Tool calls that a request forces: the whole text is the arguments of one call, or an array of calls with `name` and `parameters`. The
 * grammar guarantees this form, so that parsing needs no heuristics.
 */
import { randomHex } from "../../../base/util/random-hex.ts";
import { itemTexts, memberText } from "./json-members.ts";
import type { ParsedText, ParsedToolCall } from "./tool-calls.ts";
import { isRecord, itemAt, parseJson } from "../../../base/util/values.ts";

/** A piece of a tool call in a stream. */
export interface CallDelta {
  /** Index of the call. */
  readonly index: number;
  /** Id of the call, set on its first piece only, as are `type` and `name`. */
  readonly id?: string;
  readonly type?: "function";
  readonly function: { readonly name?: string; readonly arguments: string };
}

/** Text before the arguments of a call: the opening of the array, or the end of the previous call. */
const CALL_START = /^\s*(?:\[|\}\s*,)\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"parameters"\s*:\s*(?=\S)/;

/** Text after the arguments of the last call. */
const ARRAY_END = /^\s*\}\s*\]/;

/**
 * Whether a text is a complete array of calls: a text that was cut short, or found by beam search, which ignores grammars, may be anything.
 */
function holdsCalls(text: string): boolean {
  const value = parseJson(text);
  const isCall = (item: unknown): boolean => isRecord(item) && typeof item["name"] === "string" && "parameters" in item;
  return Array.isArray(value) && value.length > 0 && value.every(isCall);
}

/** Parser of forced tool calls and the ids of the calls. One per request. */
export class ForcedCalls {
  /** Name of the function, if the text is the arguments of one call; null if it is an array of calls. */
  readonly name: string | null;
  /** Ids by choice and call. */
  readonly #ids = new Map<string, string>();

  constructor(name: string | null) {
    this.name = name;
  }

  /** Returns the id of a call, the same for streamed and whole responses. */
  idOf(choice: number, call: number): string {
    const key = `${choice} ${call}`;
    const known = this.#ids.get(key) ?? `chatcmpl-tool-${randomHex()}`;
    this.#ids.set(key, known);
    return known;
  }

  /**
   * Parses a whole text. An array that was cut short contains no calls: it is content.
   *
   * @param choice - Index of the choice.
   * @param text - The whole text.
   * @param hasEndToken - Whether the text may end with the text of a stop token, which is dropped after a complete array.
   */
  read(choice: number, text: string, hasEndToken = false): ParsedText {
    const called = (index: number, name: string, given: string): ParsedToolCall => ({
      id: this.idOf(choice, index),
      type: "function",
      function: { name, arguments: given },
    });
    if (this.name !== null) return { content: "", toolCalls: [called(0, this.name, text)] };
    const array = hasEndToken ? this.#arrayOf(choice, text) : text;
    if (!holdsCalls(array)) return { content: text, toolCalls: [] };
    const toolCalls = itemTexts(array).map((item, index) =>
      called(index, JSON.parse(memberText(item, "name")!) as string, memberText(item, "parameters")!),
    );
    return { content: "", toolCalls };
  }

  /** Returns the array of calls at the start of a text; the whole text if the array is incomplete. */
  #arrayOf(choice: number, text: string): string {
    const stream = this.stream(choice);
    stream.push(text);
    const rest = stream.rest();
    const end = ARRAY_END.exec(rest)?.[0];
    return end === undefined ? text : text.slice(0, text.length - rest.length + end.length);
  }

  /** Returns a parser for text that arrives in pieces. */
  stream(choice: number): ForcedCallStream {
    return new ForcedCallStream(this, choice);
  }
}

/** Incremental parser, see {@link ForcedCalls.stream}. */
export class ForcedCallStream {
  readonly #forced: ForcedCalls;
  readonly #choice: number;
  /** Text that is not yet known to be part of a call. */
  #held = "";
  /** Number of calls begun. */
  #calls = 0;
  #isInArguments = false;
  /** Nesting of brackets in the current arguments. */
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  constructor(forced: ForcedCalls, choice: number) {
    this.#forced = forced;
    this.#choice = choice;
  }

  /** Whether a call has begun. */
  get hasCalls(): boolean {
    return this.#calls > 0;
  }

  /** Adds text, and returns the pieces of calls that became certain. */
  push(text: string): CallDelta[] {
    const { name } = this.#forced;
    if (name !== null) {
      if (this.#calls === 0) return [this.#start(name, text)];
      return text === "" ? [] : [{ index: 0, function: { arguments: text } }];
    }
    this.#held += text;
    const deltas: CallDelta[] = [];
    for (;;) {
      if (!this.#isInArguments) {
        const start = CALL_START.exec(this.#held);
        if (start === null) return deltas;
        this.#held = this.#held.slice(start[0].length);
        this.#isInArguments = true;
        deltas.push(this.#start(JSON.parse(itemAt(start, 1)) as string, ""));
      }
      const piece = this.#arguments();
      if (piece !== "") deltas.push({ index: this.#calls - 1, function: { arguments: piece } });
      if (this.#isInArguments) return deltas;
    }
  }

  /** Returns the text that is held back, at the end of the stream. */
  rest(): string {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }

  /** Begins the next call, and returns its first piece. */
  #start(name: string, given: string): CallDelta {
    const index = this.#calls++;
    return { index, id: this.#forced.idOf(this.#choice, index), type: "function", function: { name, arguments: given } };
  }

  /** Removes the text of the current arguments from the held-back text, up to the closing bracket, and returns it. */
  #arguments(): string {
    let end = 0;
    while (end < this.#held.length) {
      const character = this.#held.charAt(end++);
      if (this.#isEscaped) this.#isEscaped = false;
      else if (this.#isInString) {
        if (character === "\\") this.#isEscaped = true;
        else if (character === '"') this.#isInString = false;
      } else if (character === '"') this.#isInString = true;
      else if (character === "{" || character === "[") this.#depth++;
      else if ((character === "}" || character === "]") && --this.#depth === 0) {
        this.#isInArguments = false;
        break;
      }
    }
    const piece = this.#held.slice(0, end);
    this.#held = this.#held.slice(end);
    return piece;
  }
}
