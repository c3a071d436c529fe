/** Encoding of a prompt that is given as text or as token ids, without a chat template. */
import type { RawPrompt } from "../../../dialects/index.ts";
import { ArgumentError } from "../../../base/errors.ts";
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
  if ("ids" in prompt) {
    checkIds(prompt.ids, tokenizer.vocabularySize);
    // Clients take the ids from `/tokenize`. With its text, the turn is remembered for the conversation that continues it.
    const isWhole = request.truncatePromptTokens === null;
    const text = isWhole ? tokenizer.decode(prompt.ids, { skipSpecialTokens: false }) : "";
    return { text, ids: notEmpty(Int32Array.from(prompt.ids)), isWhole };
  }
  const ids = await encoder.encode(prompt.text, { ...request, addsSpecialTokens: prompt.addsSpecialTokens });
  // Not whole: the ids may include special tokens that the text does not have.
  return { text: prompt.text, ids: notEmpty(ids), isWhole: false };
}

function notEmpty(ids: Int32Array): Int32Array {
  if (ids.length === 0) throw new ArgumentError("Expected a prompt of at least one token, got none", { param: "prompt" });
  return ids;
}
