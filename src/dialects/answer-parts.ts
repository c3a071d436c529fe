/** Shared parts of translating a chat completion to the answer of a dialect. */
import { given, isGiven, type Members } from "./members.ts";
import type { ChatCompletion, ChatCompletionChunk, Choice, LogprobEntry, Usage } from "../base/schema/index.ts";
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

/** Piece of a choice in a chunk. */
export type ChunkChoice = ChatCompletionChunk["choices"][number];

/** Collector of the data about tokens in the chunks of a chat completion with one choice, which a stream reports at its end. */
export class StreamedTokens {
  /** Last token counts; null before the first ones. */
  usage: Usage | null = null;
  /** Piece of the choice that has its finish reason; null before the end. */
  finalPiece: ChunkChoice | null = null;
  /** Log-probabilities of all tokens so far. */
  readonly logprobs: LogprobEntry[] = [];
  readonly #ids: number[] = [];
  #promptIds: readonly number[] | null | undefined = null;

  /** Adds a chunk. */
  add(chunk: ChatCompletionChunk): void {
    this.usage = chunk.usage ?? this.usage;
    this.#promptIds ??= chunk.prompt_token_ids;
    for (const choice of chunk.choices) {
      this.#ids.push(...(choice.token_ids ?? []));
      this.logprobs.push(...(choice.logprobs?.content ?? []));
      if (isGiven(choice.finish_reason)) this.finalPiece = choice;
    }
  }

  /** Returns the extension members of the finished answer. */
  members(): Members {
    return tokenMembers({
      promptIds: this.#promptIds,
      ids: isGiven(this.finalPiece?.token_ids) ? this.#ids : null,
      logprobs: this.logprobs.length > 0 ? this.logprobs : null,
    });
  }
}

/** Returns the number of prompt tokens read from the prefix cache; 0 unless the service reports it. */
export function cachedTokens(usage: Usage | null | undefined): number {
  return usage?.prompt_tokens_details?.cached_tokens ?? 0;
}
