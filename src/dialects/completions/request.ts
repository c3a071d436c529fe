/** Translation of a text completion to chat completions, one per prompt. */
import { completionsRequest, type CompletionsRequest } from "../../base/schema/index.ts";
import { BodyError, checkFields, readMembers, reject, without, type Members, type OnUnsupported } from "../members.ts";
import type { RawPrompt, TranslatedCall } from "../translated-call.ts";

/** Default of `max_tokens`, as in other servers with this interface. */
const DEFAULT_MAX_TOKENS = 16;

/** Max number of prompts in one request. */
const MAX_PROMPTS = 1024;

/** Fields with another meaning than in chat completions, which this file translates; every other field passes unchanged. */
const HANDLED_FIELDS = new Set([
  "prompt",
  "add_special_tokens",
  "echo",
  "logprobs",
  "max_tokens",
  "stream",
  "stream_options",
  "best_of",
  "suffix",
]);

/** Returns the prompts of a request: a text, token ids, or a list of either. */
function promptsOf({ prompt, add_special_tokens: addsSpecialTokens }: CompletionsRequest): RawPrompt[] {
  const list: readonly unknown[] = typeof prompt === "string" ? [prompt] : prompt;
  const prompts = typeof list[0] === "number" ? [list] : list;
  if (prompts.length > MAX_PROMPTS)
    throw new BodyError(`Expected \`prompt\` to have at most ${MAX_PROMPTS} prompts, got ${prompts.length}`, { param: "prompt" });
  return prompts.map((each) =>
    typeof each === "string" ? { text: each, addsSpecialTokens: addsSpecialTokens ?? true } : { ids: each as readonly number[] },
  );
}

/** A translated text completion. */
export interface TranslatedCompletion {
  readonly request: CompletionsRequest;
  readonly calls: readonly TranslatedCall[];
  /** Whether the answer has the echoed prompt alone, because `max_tokens` is 0. One token is sampled all the same, and left out. */
  readonly omitsSample: boolean;
}

/**
 * Translates the body of `POST /v1/completions`.
 *
 * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` for `best_of` and `suffix`, unless `onUnsupported`
 *   accepts them.
 */
export function completionsToChats(members: Members, onUnsupported: OnUnsupported = reject): TranslatedCompletion {
  checkFields(members, { best_of: [1, members["n"] ?? 1], suffix: [""] }, onUnsupported);
  const request = readMembers(completionsRequest, members);
  const { echo, logprobs, stream, max_tokens: maxTokens } = request;
  if ((request.stream_options as Members | null | undefined)?.["continuous_usage_stats"] === true)
    onUnsupported("stream_options.continuous_usage_stats", true, "The last chunk has the token counts");
  const omitsSample = maxTokens === 0;
  if (omitsSample && echo !== true)
    throw new BodyError("Expected `max_tokens` to be at least 1 without `echo`, got 0", { param: "max_tokens" });
  const hasLogprobs = logprobs !== undefined && logprobs !== null;
  if (hasLogprobs && echo === true && stream === true)
    onUnsupported("stream", true, "The log-probabilities of an echoed prompt are not available in a stream; leave out one of the three");
  const promptLogprobs = echo === true ? { prompt_logprobs: logprobs } : {};
  const body = {
    ...without(members, HANDLED_FIELDS),
    max_tokens: omitsSample ? 1 : (maxTokens ?? DEFAULT_MAX_TOKENS),
    ...(hasLogprobs ? { logprobs: true, top_logprobs: logprobs, ...promptLogprobs } : {}),
  };
  return { request, omitsSample, calls: promptsOf(request).map((prompt) => ({ body, prompt })) };
}
