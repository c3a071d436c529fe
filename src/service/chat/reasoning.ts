/**
 * Reasoning at the beginning of an answer's text, up to `</think>`. The opening tag may be in the text, in the prompt, or
 * nowhere; a text without a closing tag is all reasoning.
 */

const OPEN = "<think>";
const CLOSE = "</think>";

/** What ends the reasoning. */
export const REASONING_END = CLOSE;

/** A text taken apart. */
export interface ReasonedText {
  /** Empty where there is none. */
  readonly reasoning: string;
  readonly content: string;
}

/**
 * Whether the answer to a prompt begins with content: its last turn, begun by the template or the caller, has ended its
 * reasoning already.
 *
 * @param prompt - The prompt's text.
 * @param terminators - Texts of the tokens that end a turn; what stands before the last of them is history.
 */
export function hasEndedReasoning(prompt: string, terminators: readonly string[]): boolean {
  const last = Math.max(...terminators.map((text) => prompt.lastIndexOf(text)), 0);
  const close = prompt.lastIndexOf(CLOSE);
  return close > last && close > prompt.lastIndexOf(OPEN);
}

/**
 * Takes a whole text apart.
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

/** The same over a stream: what is shown, joined, is what {@link splitReasoning} gives for the whole. */
export class ReasoningStream {
  #held = "";
  #place: "start" | "reasoning" | "content" = "start";

  /** Takes more text; returns what is surely reasoning or content. */
  push(text: string): ReasonedText {
    if (this.#place === "content") return { reasoning: "", content: text };
    this.#held += text;
    if (this.#place === "start") {
      if (this.#held.length < OPEN.length && OPEN.startsWith(this.#held)) return { reasoning: "", content: "" };
      if (this.#held.startsWith(OPEN)) this.#held = this.#held.slice(OPEN.length);
      this.#place = "reasoning";
    }
    const end = this.#held.indexOf(CLOSE);
    if (end !== -1) {
      const content = this.#held.slice(end + CLOSE.length);
      const reasoning = this.#held.slice(0, end);
      this.#held = "";
      this.#place = "content";
      return { reasoning, content };
    }
    let kept = Math.min(CLOSE.length - 1, this.#held.length);
    while (!CLOSE.startsWith(this.#held.slice(this.#held.length - kept))) kept--;
    const reasoning = this.#held.slice(0, this.#held.length - kept);
    this.#held = this.#held.slice(this.#held.length - kept);
    return { reasoning, content: "" };
  }

  /** What is held, at the end of the text: reasoning after all. */
  rest(): string {
    const rest = this.#held;
    this.#held = "";
    return rest;
  }
}
