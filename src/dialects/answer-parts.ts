/** Shared parts of translating a chat completion to the answer of a dialect. */
import { given, type Members } from "./index.ts";
import type { ChatCompletion, Choice, LogprobEntry, Usage } from "../base/schema/index.ts";
import { first } from "../base/util/values.ts";

/** Returns the first choice of a completion. */
export function firstChoice({ choices }: ChatCompletion): Choice {
  return first(choices);
}

/** Returns the extension members of a response: token ids of prompt and output, and the log-probability and text of each output token. */
export function tokenMembers(parts: {
  readonly promptIds: readonly number[] | null | undefined;
  readonly ids: readonly number[] | null | undefined;
  readonly logprobs: readonly Pick<LogprobEntry, "logprob" | "token">[] | null | undefined;
}): Members {
  return given({
    prompt_token_ids: parts.promptIds,
    token_ids: parts.ids,
    logprobs: parts.logprobs?.map(({ logprob }) => logprob),
    tokens: parts.logprobs?.map(({ token }) => token),
  });
}

/** Returns the number of prompt tokens read from the prefix cache; 0 unless the service reports it. */
export function cachedTokens(usage: Usage | null | undefined): number {
  return usage?.prompt_tokens_details?.cached_tokens ?? 0;
}
