/** Translation of a chat completion to the answer of the token route (`POST /inference/v1/generate`), which has token ids and no text. */
import type { ChatCompletion, GenerateAnswer } from "../../base/schema/index.ts";

/** Returns the answer of a completion. */
export function toGenerateAnswer({ id, choices, prompt_token_ids: promptIds, usage }: ChatCompletion): GenerateAnswer {
  return {
    request_id: id.replace(/^chatcmpl-/u, ""),
    choices: choices.map(({ index, token_ids: ids, finish_reason: reason, logprobs }) => ({
      index,
      token_ids: ids ?? [],
      finish_reason: reason ?? null,
      logprobs: logprobs ?? null,
    })),
    prompt_token_ids: promptIds ?? [],
    usage,
  };
}
