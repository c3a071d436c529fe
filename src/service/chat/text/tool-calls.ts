/**
 * Parser of tool calls in generated text: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of them, the last one possibly
 * unclosed. Text before the first call is the message's content.
 */
import { isRecord, parseJson } from "../../../base/util/values.ts";
import { randomHex } from "../../../base/util/random-hex.ts";
import { memberText } from "./json-members.ts";

const OPEN = "<tool_call>";
const CLOSE = "</tool_call>";

/** A tool call of a response. `arguments` is JSON text with the spelling that was sampled. */
export interface ParsedToolCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

/** A text split into content and tool calls. */
export interface ParsedText {
  readonly content: string;
  readonly toolCalls: readonly ParsedToolCall[];
}

/** Parses the JSON of one call; null for anything else. */
function parseCall(text: string): ParsedToolCall | null {
  const value = parseJson(text);
  if (!isRecord(value)) return null;
  const { name, arguments: parsedArguments } = value;
  if (typeof name !== "string" || name === "") return null;
  // Chat templates cannot render other arguments than an object when the client sends the call back.
  if (parsedArguments !== undefined && !isRecord(parsedArguments)) return null;
  return {
    id: `chatcmpl-tool-${randomHex()}`,
    type: "function",
    function: { name, arguments: memberText(text, "arguments") ?? "{}" },
  };
}

/**
 * Parses a whole text. If any call does not parse, there are no tool calls and the whole text is content.
 *
 * @param text - Generated text, without reasoning.
 * @returns Text before the first call, and the tool calls.
 * @example
 * ```ts
 * parseToolCalls('Let me see.<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>').toolCalls[0]?.function.name; // "add"
 * ```
 */
export function parseToolCalls(text: string): ParsedText {
  const firstOpen = text.indexOf(OPEN);
  const toolCalls: ParsedToolCall[] = [];
  let open = firstOpen;
  while (open !== -1) {
    const start = open + OPEN.length;
    const close = text.indexOf(CLOSE, start);
    const call = parseCall(text.slice(start, close === -1 ? undefined : close));
    if (call === null) return { content: text, toolCalls: [] };
    toolCalls.push(call);
    open = close === -1 ? -1 : text.indexOf(OPEN, close);
  }
  return { content: firstOpen === -1 ? text : text.slice(0, firstOpen), toolCalls };
}

/** Returns the number of UTF-16 units at the end of `text` that may be the beginning of `tag`. */
export function openingSuffix(text: string, tag: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(tag.slice(0, length))) return length;
  }
  return 0;
}

/**
 * Incremental variant of {@link parseToolCalls}. Text before the first call passes at once, except for an end that may begin a tag. From
 * the first tag on all text is held back until the end: a single call that does not parse turns all of it into content, and a stream must
 * contain the same content as a response that is not streamed.
 */
export class ToolCallStream {
  /** Text that may begin a tag or belong to a call. */
  #heldText = "";
  /** Whether a call has begun. */
  #isInCalls = false;

  /** Adds text, and returns text that is certainly content. */
  push(text: string): string {
    this.#heldText += text;
    if (this.#isInCalls) return "";
    const open = this.#heldText.indexOf(OPEN);
    this.#isInCalls = open !== -1;
    const contentEnd = this.#isInCalls ? open : this.#heldText.length - openingSuffix(this.#heldText, OPEN);
    const content = this.#heldText.slice(0, contentEnd);
    this.#heldText = this.#heldText.slice(contentEnd);
    return content;
  }

  /** Removes and returns the text that is held back, at the end of the stream. */
  takeHeldText(): string {
    const text = this.#heldText;
    this.#heldText = "";
    return text;
  }
}
