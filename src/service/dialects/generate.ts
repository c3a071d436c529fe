/** The dialect of token ids (`POST /inference/v1/generate`). */
import type { ChatCompletion, GenerateAnswer } from "../../schema/index.ts";
import type { Dialect, Translation } from "./dialect.ts";

function toAnswer({ id, choices, prompt_token_ids: promptIds, usage }: ChatCompletion): GenerateAnswer {
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

/** Dialect of vLLM's interface for token ids. */
export const generateDialect: Dialect<Translation, "generate"> = {
  name: "generate",
  open: ({ calls }) => ({ calls, answer: ([completion]) => toAnswer(completion!), shaper: null }),
};
