/** Encoding of a prompt that is given as text or as token ids, without a chat template. */
import type { RawPrompt } from "../../../dialects/index.ts";
import { ArgumentError } from "../../../base/errors.ts";
import type { ChatRequest } from "../request/request.ts";
import type { PromptEncoder, RenderedPrompt } from "./render.ts";

function checkIds(ids: readonly number[], vocabularySize: number): void {
  const invalidId = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabularySize);
  if (invalidId !== undefined)
    throw new ArgumentError(`Expected token ids from 0 to ${vocabularySize - 1}, the vocabulary of the model, got ${invalidId}`, {
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
    // Clients take the ids from `/tokenize`. With the text of the ids, `rememberTurn` finds the turn in a conversation that continues it.
    const isWhole = request.truncatePromptTokens === null;
    const text = isWhole ? tokenizer.decode(prompt.ids, { skipSpecialTokens: false }) : "";
    return { text, ids: notEmpty(Int32Array.from(prompt.ids)), isWhole };
  }
  const ids = await encoder.encode(prompt.text, { ...request, addsSpecialTokens: prompt.addsSpecialTokens });
  // Not whole: the ids may include special tokens that the text does not have.
  return { text: prompt.text, ids: notEmpty(ids), isWhole: false };
}

/** Returns the ids. @throws ArgumentError `E_ARGUMENT` for an empty prompt. */
function notEmpty(ids: Int32Array): Int32Array {
  if (ids.length === 0) throw new ArgumentError("Expected a prompt of at least one token, got none", { param: "prompt" });
  return ids;
}
