/** Encoder of a request's prompt. `ChatWork` renders and encodes short prompts on the serving thread, and long ones on work threads. */
import type { BaseModelInfo } from "../../../engine/port.ts";
import type { ChatTokenizer } from "../../../text/tokenizer/index.ts";
import type { PromptRequest } from "../request/prompt-request.ts";
import type { PromptText } from "./encode-prompt.ts";
import type { PromptEncoder } from "./render.ts";

/** Rendering and encoding of prompts, on a thread that depends on their length. */
export interface PromptWork {
  renderText(tokenizer: ChatTokenizer, directory: string, request: PromptRequest, signal: AbortSignal): Promise<string>;
  encode(tokenizer: ChatTokenizer, prompt: PromptText, signal: AbortSignal): Promise<Int32Array>;
}

/**
 * Creates the encoder of a request's prompt.
 *
 * @param truncatedTo - Number of tokens that the prompt is truncated to; null without truncation.
 */
export function promptEncoder(
  work: PromptWork,
  tokenizer: ChatTokenizer,
  truncatedTo: number | null,
  { base: { directory, contextLength }, signal }: { readonly base: BaseModelInfo; readonly signal: AbortSignal },
): PromptEncoder {
  // A prompt that will be truncated may have any length.
  const maxTokens = truncatedTo === null ? contextLength : null;
  // One id more than needed, so that `truncatePrompt` recognizes a longer prompt.
  const tail = truncatedTo === null ? null : truncatedTo + 1;
  return {
    tokenizer,
    directory,
    tail,
    render: (request) => work.renderText(tokenizer, directory, request, signal),
    encode: (text, { addsSpecialTokens }, follows) =>
      work.encode(tokenizer, { directory, text, addSpecialTokens: addsSpecialTokens, follows, maxTokens, tail }, signal),
  };
}
