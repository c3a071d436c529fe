/**
 * Parser of reasoning at the beginning of a generated text, up to `</think>`. The opening tag may be in the text, in the prompt, or
 * missing; a text without a closing tag is all reasoning.
 */
import { openingSuffix } from "./tool-calls.ts";

const OPEN = "<think>";
const CLOSE = "</think>";

/** Text that ends the reasoning. */
export const REASONING_END = CLOSE;

/** A text split into reasoning and content. */
export interface ReasonedText {
  /** Text of the reasoning; empty for a text without reasoning. */
  readonly reasoning: string;
  readonly content: string;
}

/**
 * Whether the response to a prompt begins with content: the prompt's last turn, begun by the template or the client, has already ended its
 * reasoning.
 *
 * @param prompt - The prompt's text.
 * @param terminators - Texts of the tokens that end a turn; text before the last of them is history.
 */
export function hasEndedReasoning(prompt: string, terminators: readonly string[]): boolean {
  const closeTag = prompt.lastIndexOf(CLOSE);
  return closeTag > lastIndexOfAny(prompt, terminators) && closeTag > prompt.lastIndexOf(OPEN);
}

/** Returns the start of the last terminator in a prompt; 0 without one. */
function lastIndexOfAny(prompt: string, terminators: readonly string[]): number {
  return Math.max(...terminators.map((text) => prompt.lastIndexOf(text)), 0);
}

/**
 * Whether a turn has tags of reasoning, which chat templates write in their own way when the turn is sent back.
 *
 * @param prompt - The prompt's text.
 * @param text - The sampled text.
 * @param terminators - Texts of the tokens that end a turn; text before the last of them is history.
 */
export function hasReasoningTags(prompt: string, text: string, terminators: readonly string[]): boolean {
  return text.includes(CLOSE) || prompt.lastIndexOf(OPEN) > lastIndexOfAny(prompt, terminators);
}

/**
 * Splits a whole text into reasoning and content.
 *
 * @example
 * ```ts
 * splitReasoning("<think>two and two</think>4"); // { reasoning: "two and two", content: "4" }
 * ```
 */
export function splitReasoning(text: string): ReasonedText {
  const start = text.startsWith(OPEN) ? OPEN.length : 0;
  const end = text.indexOf(CLOSE, start);
  return end === -1
    ? { reasoning: text.slice(start), content: "" }
    : { reasoning: text.slice(start, end), content: text.slice(end + CLOSE.length) };
}

/** Incremental variant of {@link splitReasoning}: the concatenated pieces equal its result for the whole text. */
export class ReasoningStream {
  /** Text that may begin a tag, and is not returned yet. */
  #heldText = "";
  /** Part of the text that the next piece belongs to. */
  #part: "start" | "reasoning" | "content" = "start";

  /** Adds text, and returns text that is certainly reasoning or content. */
  push(text: string): ReasonedText {
    if (this.#part === "content") return { reasoning: "", content: text };
    this.#heldText += text;
    if (this.#part === "start") {
      if (this.#heldText.length < OPEN.length && OPEN.startsWith(this.#heldText)) return { reasoning: "", content: "" };
      if (this.#heldText.startsWith(OPEN)) this.#heldText = this.#heldText.slice(OPEN.length);
      this.#part = "reasoning";
    }
    const end = this.#heldText.indexOf(CLOSE);
    if (end !== -1) {
      const content = this.#heldText.slice(end + CLOSE.length);
      const reasoning = this.#heldText.slice(0, end);
      this.#heldText = "";
      this.#part = "content";
      return { reasoning, content };
    }
    const certainLength = this.#heldText.length - openingSuffix(this.#heldText, CLOSE);
    const reasoning = this.#heldText.slice(0, certainLength);
    this.#heldText = this.#heldText.slice(certainLength);
    return { reasoning, content: "" };
  }

  /** Removes and returns the text that is held back, at the end of the stream; it is reasoning. */
  takeHeldText(): string {
    const text = this.#heldText;
    this.#heldText = "";
    return text;
  }
}
