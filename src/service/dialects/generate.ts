/** The dialect of token ids (`POST /inference/v1/generate`). */
import { generateRequest, type ChatCompletion, type GenerateAnswer } from "../../schema/index.ts";
import { rejectMessageFields } from "./completions/request.ts";
import type { Dialect, Members, Translation } from "./dialect.ts";
import { chatBytes, given, isGiven, readMembers, rejectFields, unsupported } from "./translate.ts";

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

/** Fields of `sampling_params` about the text, which this dialect does not return. */
const TEXT_FIELDS = new Set(["logprobs", "detokenize", "output_kind", "skip_special_tokens", "spaces_between_special_tokens"]);

/**
 * Translates the body of `POST /inference/v1/generate`.
 *
 * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` for streams, and inputs other than token ids.
 */
export function translateGenerate(members: Members): Translation {
  rejectFields(members, { stream: [false] });
  const { features, kv_transfer_params: transfer, ...known } = members;
  if (isGiven(features)) throw unsupported("features", features, "This model reads text alone; leave `features` out");
  if (isGiven(transfer)) throw unsupported("kv_transfer_params", transfer, "Leave `kv_transfer_params` out");
  const { model, token_ids: ids, sampling_params: sampling, cache_salt, priority } = readMembers(generateRequest, known);
  const params: Members = sampling ?? {};
  rejectMessageFields(params);
  const { seed } = params;
  if (typeof seed === "number" && !Number.isSafeInteger(seed))
    throw unsupported("sampling_params.seed", seed, "Send an integer beyond 2^53 as a string of digits");
  const { logprobs } = params;
  const body = {
    ...Object.fromEntries(Object.entries(params).filter(([name]) => !TEXT_FIELDS.has(name))),
    ...given({ model, cache_salt, priority, request_id: known["request_id"] }),
    ...(isGiven(logprobs) ? { logprobs: true, top_logprobs: logprobs } : {}),
    return_token_ids: true,
    return_tokens_as_token_ids: true,
  };
  return { calls: [{ body: chatBytes(body, false), prompt: { ids } }] };
}

/** Dialect of vLLM's interface for token ids. */
export const generateDialect: Dialect<Translation, "generate"> = {
  name: "generate",
  open: ({ calls }) => ({ calls, answer: ([completion]) => toAnswer(completion!), shaper: null }),
};
