/** From the text of a prompt to its tokens, unless its length alone shows that they are too many. */
import { ArgumentError } from "../../errors.ts";
import type { ChatTokenizer, EncodeOptions } from "../../tokenizer/index.ts";

/** A rendered prompt, or its end. */
export interface PromptText {
  /** The model, which stands for its tokenizer. */
  readonly directory: string;
  readonly text: string;
  readonly addSpecialTokens: boolean;
  /** What the text continues; undefined for a whole prompt. */
  readonly follows?: EncodeOptions["follows"];
  /** Tokens that a prompt may have; null for one that is cut to fit. */
  readonly maxTokens: number | null;
}

const longest = new WeakMap<ChatTokenizer, number>();

/** Bytes of the longest token; no token stands for more UTF-16 units than bytes. */
function longestToken(tokenizer: ChatTokenizer): number {
  let length = longest.get(tokenizer);
  if (length === undefined) {
    length = 1;
    for (let id = 0; id < tokenizer.vocabularySize; id++) length = Math.max(length, tokenizer.tokenBytes(id).length);
    longest.set(tokenizer, length);
  }
  return length;
}

/**
 * Encodes a prompt.
 *
 * @throws ArgumentError `E_ARGUMENT`, param `input_text`, for a text longer than `maxTokens` of the longest token.
 */
export function encodePrompt(tokenizer: ChatTokenizer, { text, addSpecialTokens, follows, maxTokens }: PromptText): Int32Array {
  if (maxTokens !== null && text.length > maxTokens && text.length > maxTokens * longestToken(tokenizer)) {
    throw new ArgumentError(
      `This model's maximum context length is ${maxTokens} tokens, which hold at most ${maxTokens * longestToken(tokenizer)} characters; the messages have ${text.length}; shorten the messages`,
      { param: "input_text" },
    );
  }
  return tokenizer.encode(text, { addSpecialTokens, follows });
}
