/**
 * Tool calls that a request forces. If the request names a function, the whole text is the arguments of one call; otherwise it is an array of
 * calls, `[{"name": …, "parameters": {…}}, …]`. Arguments are always objects. The grammar guarantees this form, so that parsing needs no
 * heuristics; only a text that was cut short may end anywhere.
 */
import { randomHex } from "../../../base/util/random-hex.ts";
import { itemTexts, memberText } from "./json-members.ts";
import type { ParsedText, ParsedToolCall } from "./tool-calls.ts";
import { getOrInsert, isRecord, itemAt, parseJson } from "../../../base/util/values.ts";

/** A piece of a tool call in a stream. The first piece of a call has `id`, `type` and `name`; the later ones have only arguments. */
export interface CallDelta {
  /** Index of the call in its choice. */
  readonly index: number;
  readonly id?: string;
  readonly type?: "function";
  readonly function: { readonly name?: string; readonly arguments: string };
}

/** Text before the arguments of a call: the opening of the array, or the end of the previous call. */
const CALL_START = /^\s*(?:\[|\}\s*,)\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"parameters"\s*:\s*(?=\S)/;

/** Text after the arguments of the last call. */
const ARRAY_END = /^\s*\}\s*\]/;

/** Whether a text is a complete array of calls. A truncated text is not, and beam search, which ignores grammars, may find any text. */
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

  /** @param name - Name of the function that the request names; null if the model chooses the functions. */
  constructor(name: string | null) {
    this.name = name;
  }

  /** Returns the id of a call, the same for streamed and whole responses. */
  idOf(choice: number, call: number): string {
    return getOrInsert(this.#ids, `${choice} ${call}`, () => `chatcmpl-tool-${randomHex()}`);
  }

  /**
   * Parses a whole text. An array that was cut short contains no calls: it is content.
   *
   * @param choice - Index of the choice.
   * @param text - The whole text.
   * @param hasEndToken - Whether the text may end with the text of a stop token, which is dropped after a complete array.
   */
  read(choice: number, text: string, hasEndToken = false): ParsedText {
    const toCall = (index: number, name: string, argumentsText: string): ParsedToolCall => ({
      id: this.idOf(choice, index),
      type: "function",
      function: { name, arguments: argumentsText },
    });
    if (this.name !== null) return { content: "", toolCalls: [toCall(0, this.name, text)] };
    const array = hasEndToken ? this.#withoutEndToken(choice, text) : text;
    if (!holdsCalls(array)) return { content: text, toolCalls: [] };
    const toolCalls = itemTexts(array).map((item, index) => {
      const name = JSON.parse(memberText(item, "name")!) as string;
      return toCall(index, name, memberText(item, "parameters")!);
    });
    return { content: "", toolCalls };
  }

  /** Returns a text up to the end of its array of calls; the whole text if the array is incomplete. */
  #withoutEndToken(choice: number, text: string): string {
    const stream = this.stream(choice);
    stream.push(text);
    // The stream has passed all calls on; the end of the array and the end token remain.
    const remainder = stream.takeHeldText();
    const arrayEnd = ARRAY_END.exec(remainder)?.[0];
    return arrayEnd === undefined ? text : text.slice(0, text.length - remainder.length + arrayEnd.length);
  }

  /** Returns a parser for text that arrives in pieces. */
  stream(choice: number): ForcedCallStream {
    return new ForcedCallStream(this, choice);
  }
}

/**
 * Incremental parser, see {@link ForcedCalls.stream}. In an array of calls, it alternates between the text before the arguments of a call,
 * which it holds back until {@link CALL_START} matches, and the arguments, which it passes on as they arrive.
 */
export class ForcedCallStream {
  readonly #forced: ForcedCalls;
  readonly #choice: number;
  /** Text that is not yet known to be part of a call. */
  #heldText = "";
  /** Number of calls begun. */
  #callCount = 0;
  /** Whether the held text begins inside of the arguments of the last call. */
  #isInArguments = false;
  /** Nesting of brackets in the current arguments; 0 outside of arguments. */
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  constructor(forced: ForcedCalls, choice: number) {
    this.#forced = forced;
    this.#choice = choice;
  }

  /** Whether a call has begun. */
  get hasCalls(): boolean {
    return this.#callCount > 0;
  }

  /** Adds text, and returns the pieces of calls that became certain. */
  push(text: string): CallDelta[] {
    const { name } = this.#forced;
    return name === null ? this.#pushToArray(text) : this.#pushToCall(name, text);
  }

  /** Adds text of the arguments of the only call. */
  #pushToCall(name: string, text: string): CallDelta[] {
    if (this.#callCount === 0) return [this.#startCall(name, text)];
    return text === "" ? [] : [{ index: 0, function: { arguments: text } }];
  }

  /** Adds text of an array of calls. */
  #pushToArray(text: string): CallDelta[] {
    this.#heldText += text;
    const deltas: CallDelta[] = [];
    for (;;) {
      if (!this.#isInArguments) {
        const start = CALL_START.exec(this.#heldText);
        if (start === null) return deltas;
        this.#heldText = this.#heldText.slice(start[0].length);
        this.#isInArguments = true;
        deltas.push(this.#startCall(JSON.parse(itemAt(start, 1)) as string, ""));
      }
      const piece = this.#takeArguments();
      if (piece !== "") deltas.push({ index: this.#callCount - 1, function: { arguments: piece } });
      if (this.#isInArguments) return deltas;
    }
  }

  /** Removes and returns the text that is held back, at the end of the stream. */
  takeHeldText(): string {
    const text = this.#heldText;
    this.#heldText = "";
    return text;
  }

  /** Begins the next call, and returns its first piece. */
  #startCall(name: string, argumentsText: string): CallDelta {
    const index = this.#callCount;
    this.#callCount++;
    return { index, id: this.#forced.idOf(this.#choice, index), type: "function", function: { name, arguments: argumentsText } };
  }

  /** Removes and returns the text of the current arguments from the held-back text, up to the bracket that closes them. */
  #takeArguments(): string {
    let end = 0;
    while (this.#isInArguments && end < this.#heldText.length) {
      this.#readCharacter(this.#heldText.charAt(end));
      end++;
    }
    const piece = this.#heldText.slice(0, end);
    this.#heldText = this.#heldText.slice(end);
    return piece;
  }

  /** Reads a character of the arguments, which end with the bracket that closes the first one. */
  #readCharacter(character: string): void {
    if (this.#isInString) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (character === "\\") this.#isEscaped = true;
      else if (character === '"') this.#isInString = false;
      return;
    }
    if (character === '"') this.#isInString = true;
    else if (character === "{" || character === "[") this.#depth++;
    else if (character === "}" || character === "]") {
      this.#depth--;
      this.#isInArguments = this.#depth !== 0;
    }
  }
}
