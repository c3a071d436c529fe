/** The dialect of token ids (`POST /inference/v1/generate`). */
import { generateToChat, type Members } from "../../dialects/index.ts";
import type { ChatCompletion, GenerateAnswer } from "../../schema/index.ts";
import type { Dialect } from "./dialect.ts";
import { rejectMessageFields } from "./message-fields.ts";

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
export const generateDialect: Dialect = {
  name: "generate",
  open(members) {
    const call = generateToChat(members);
    rejectMessageFields((members["sampling_params"] ?? {}) as Members);
    return { calls: [call], answer: ([completion]) => toAnswer(completion!), shaper: null };
  },
};
