/** Encoding of a prompt that is given as text or as token ids, without a chat template. */
import type { RawPrompt } from "../../../dialects/index.ts";
import { ArgumentError } from "../../../errors.ts";
import type { ChatRequest } from "../request/request.ts";
import type { PromptEncoder, RenderedPrompt } from "./render.ts";

function checkIds(ids: readonly number[], vocabularySize: number): void {
  const wrong = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabularySize);
  if (wrong !== undefined)
    throw new ArgumentError(`Expected token ids from 0 to ${vocabularySize - 1}, the vocabulary of the model, got ${wrong}`, {
      param: "prompt",
    });
}

/**
 * Encodes a raw prompt.
 *
 * @throws ArgumentError `E_ARGUMENT`, param `prompt`, for an empty prompt and for token ids outside of the vocabulary.
 */
export async function encodeRawPrompt(prompt: RawPrompt, request: ChatRequest, encoder: PromptEncoder): Promise<RenderedPrompt> {
  const { tokenizer } = encoder;
  if ("ids" in prompt) checkIds(prompt.ids, tokenizer.vocabularySize);
  const ids =
    "ids" in prompt
      ? Int32Array.from(prompt.ids)
      : await encoder.encode(prompt.text, { ...request, addsSpecialTokens: prompt.addsSpecialTokens });
  if (ids.length === 0) throw new ArgumentError("Expected a prompt of at least one token, got none", { param: "prompt" });
  // Not whole: no conversation starts with a raw prompt, so its turn is not remembered.
  return { text: "text" in prompt ? prompt.text : "", ids, isWhole: false };
}
