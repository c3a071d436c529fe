/**
 * Parser of reasoning at the beginning of a generated text, up to `</think>`. The opening tag may be in the text, in the prompt, or
 * missing; a text without a closing tag is all reasoning.
 */

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
  const last = Math.max(...terminators.map((text) => prompt.lastIndexOf(text)), 0);
  const close = prompt.lastIndexOf(CLOSE);
  return close > last && close > prompt.lastIndexOf(OPEN);
}

/**
 * Whether a turn has tags of reasoning, which chat templates write in their own way when the turn is sent back.
 *
 * @param prompt - The prompt's text.
 * @param text - The sampled text.
 * @param terminators - Texts of the tokens that end a turn; text before the last of them is history.
 */
export function hasReasoningTags(prompt: string, text: string, terminators: readonly string[]): boolean {
  const last = Math.max(...terminators.map((each) => prompt.lastIndexOf(each)), 0);
  return text.includes(CLOSE) || prompt.lastIndexOf(OPEN) > last;
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
  #held = "";
  /** Part of the text that the next piece belongs to. */
  #part: "start" | "reasoning" | "content" = "start";

  /** Adds text, and returns text that is certainly reasoning or content. */
  push(text: string): ReasonedText {
    if (this.#part === "content") return { reasoning: "", content: text };
    this.#held += text;
    if (this.#part === "start") {
      if (this.#held.length < OPEN.length && OPEN.startsWith(this.#held)) return { reasoning: "", content: "" };
      if (this.#held.startsWith(OPEN)) this.#held = this.#held.slice(OPEN.length);
      this.#part = "reasoning";
    }
    const end = this.#held.indexOf(CLOSE);
    if (end !== -1) {
      const content = this.#held.slice(end + CLOSE.length);
      const reasoning = this.#held.slice(0, end);
      this.#held = "";
      this.#part = "content";
      return { reasoning, content };
    }
    let heldLength = Math.min(CLOSE.length - 1, this.#held.length);
    while (!CLOSE.startsWith(this.#held.slice(this.#held.length - heldLength))) heldLength--;
    const reasoning = this.#held.slice(0, this.#held.length - heldLength);
    this.#held = this.#held.slice(this.#held.length - heldLength);
    return { reasoning, content: "" };
  }

  /** Returns the text that is held back, at the end of the stream; it is reasoning. */
  rest(): string {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }
}
