/** Translation of a request of the token route (`POST /inference/v1/generate`) to a chat completion. */
import { generateRequest } from "../../base/schema/index.ts";
import { checkFields, given, isGiven, readMembers, reject, without, type Members, type OnUnsupported } from "../members.ts";
import type { TranslatedCall } from "../translated-call.ts";

/** Fields of `sampling_params` that do not pass: settings of the text, which this dialect does not return, and the translated `logprobs`. */
const HANDLED_FIELDS = new Set(["logprobs", "detokenize", "output_kind", "skip_special_tokens", "spaces_between_special_tokens"]);

/**
 * Translates the body of `POST /inference/v1/generate`.
 *
 * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` for streams, features of other inputs than text and
 *   rounded seeds, unless `onUnsupported` accepts them.
 */
export function generateToChat(members: Members, onUnsupported: OnUnsupported = reject): TranslatedCall {
  checkFields(members, { stream: [false] }, onUnsupported);
  const { features, kv_transfer_params: transfer, ...known } = members;
  if (isGiven(features)) onUnsupported("features", features, "This model reads text alone; leave `features` out");
  if (isGiven(transfer)) onUnsupported("kv_transfer_params", transfer, "Leave `kv_transfer_params` out");
  const { model, token_ids: ids, sampling_params: sampling, cache_salt, priority } = readMembers(generateRequest, known);
  const params: Members = sampling ?? {};
  const { seed, logprobs } = params;
  if (typeof seed === "number" && !Number.isSafeInteger(seed))
    onUnsupported("sampling_params.seed", seed, "Send an integer beyond 2^53 as a string of digits");
  const body = {
    ...without(params, HANDLED_FIELDS),
    ...given({ model, cache_salt, priority, request_id: known["request_id"] }),
    ...(isGiven(logprobs) ? { logprobs: true, top_logprobs: logprobs } : {}),
    return_token_ids: true,
    return_tokens_as_token_ids: true,
  };
  return { body, prompt: { ids } };
}
