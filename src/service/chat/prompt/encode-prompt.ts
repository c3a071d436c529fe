/** Encoding of a prompt's text, which is skipped if the text is certainly too long. */
import { ArgumentError } from "../../../base/errors.ts";
import type { ChatTokenizer, EncodeOptions } from "../../../text/tokenizer/index.ts";

/** A rendered prompt, or the end of one. */
export interface PromptText {
  /** Directory of the model, which identifies its tokenizer. */
  readonly directory: string;
  readonly text: string;
  readonly addSpecialTokens: boolean;
  /** Kind of the preceding text, see `EncodeOptions.follows`; undefined for a whole prompt. */
  readonly follows?: EncodeOptions["follows"];
  /** Maximum number of tokens; null for a prompt that will be truncated. */
  readonly maxTokens: number | null;
  /** Number of ids to return from the end of the text, at most; null for all. */
  readonly tail: number | null;
}

/**
 * Encodes a prompt.
 *
 * @throws ArgumentError `E_ARGUMENT`, param `input_text`, if the text is longer than `maxTokens` times the longest token; also for a word that
 *   is too long to find the tokens of a tail, see `EncodeOptions.tail`.
 */
export function encodePrompt(tokenizer: ChatTokenizer, { text, addSpecialTokens, follows, maxTokens, tail }: PromptText): Int32Array {
  if (maxTokens !== null && text.length > maxTokens && text.length > maxTokens * tokenizer.maxTokenBytes) {
    throw new ArgumentError(
      `This model's maximum context length is ${maxTokens} tokens, which hold at most ${maxTokens * tokenizer.maxTokenBytes} characters; the messages have ${text.length}; shorten the messages`,
      { param: "input_text" },
    );
  }
  return tokenizer.encode(text, { addSpecialTokens, follows, tail: tail ?? undefined });
}
