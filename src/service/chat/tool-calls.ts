/**
 * Tool calls written into the text: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of them, the last one
 * possibly unclosed. What stands before the first is the message's content.
 */
import { randomBytes } from "node:crypto";
import { memberText } from "./json-members.ts";

const OPEN = "<tool_call>";
const CLOSE = "</tool_call>";

/** A tool call as a response carries it. `arguments` is JSON text, spelled as it was sampled. */
export interface ParsedToolCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

/** A text taken apart. */
export interface ParsedText {
  readonly content: string;
  readonly toolCalls: readonly ParsedToolCall[];
}

function parseCall(text: string): ParsedToolCall | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  const { name, arguments: given } = value as { readonly name?: unknown; readonly arguments?: unknown };
  if (typeof name !== "string" || name === "") return null;
  // A history with anything but an object could not be rendered when it comes back.
  if (given !== undefined && (typeof given !== "object" || given === null || Array.isArray(given))) return null;
  return {
    id: `chatcmpl-tool-${randomBytes(8).toString("hex")}`,
    type: "function",
    function: { name, arguments: given === undefined ? "{}" : memberText(text, "arguments")! },
  };
}

/**
 * Takes a whole text apart. When one call does not parse there are none: the whole text is content.
 *
 * @example
 * ```ts
 * parseToolCalls('Let me see.<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>').toolCalls[0]?.function.name; // "add"
 * ```
 */
export function parseToolCalls(text: string): ParsedText {
  const first = text.indexOf(OPEN);
  if (first === -1) return { content: text, toolCalls: [] };
  const toolCalls: ParsedToolCall[] = [];
  for (let at = first; at !== -1;) {
    const start = at + OPEN.length;
    const close = text.indexOf(CLOSE, start);
    const call = parseCall(text.slice(start, close === -1 ? undefined : close));
    if (call === null) return { content: text, toolCalls: [] };
    toolCalls.push(call);
    at = close === -1 ? -1 : text.indexOf(OPEN, close);
  }
  return { content: text.slice(0, first), toolCalls };
}

/** How many units at the end of `text` may be the beginning of a tag. */
function openingSuffix(text: string): number {
  for (let length = Math.min(OPEN.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(OPEN.slice(0, length))) return length;
  }
  return 0;
}

/**
 * The same over a stream. Text before the first call passes at once, but for an end that may open a tag. From the first tag on
 * everything is held until the end: whether it is calls or, with one that does not parse, content, is known only then, and what
 * was streamed must be what the plain answer would have said.
 */
export class ToolCallStream {
  #held = "";
  #isInCalls = false;

  /** Takes more text; returns what is surely content. */
  push(text: string): string {
    this.#held += text;
    if (this.#isInCalls) return "";
    const open = this.#held.indexOf(OPEN);
    this.#isInCalls = open !== -1;
    const end = this.#isInCalls ? open : this.#held.length - openingSuffix(this.#held);
    const content = this.#held.slice(0, end);
    this.#held = this.#held.slice(end);
    return content;
  }

  /** What is held, at the end of the text. */
  rest(): string {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }
}
