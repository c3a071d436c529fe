/** Interface of the models that judge, and the cost of their answers. */
import type { ChatCompletion, ChatCompletionRequest, Usage } from "../../base/schema/index.ts";

/** Prices of a judge's tokens in US dollars. */
export interface JudgePrices {
  /** Price of a million prompt tokens; at least 0. */
  readonly inputPerMillion: number;
  /** Price of a million completion tokens; at least 0. */
  readonly outputPerMillion: number;
}

/**
 * Model that answers the requests of a judge: a {@link JudgeEndpoint}, a `Policy`, or any object of this shape.
 *
 * @example
 * ```ts
 * const judge: JudgeModel = {
 *   id: "whetstone-tiny",
 *   complete: (request, options) => service.chat.completions.create({ ...request, stream: false }, options),
 * };
 * ```
 */
export interface JudgeModel {
  /** Name of the model, sent as `model` of each request and part of the cache key. */
  readonly id: string;
  /** Address of the model's endpoint; part of the cache key. @default none */
  readonly baseUrl?: string | undefined;
  /** Prices of the model's tokens. Without prices, the metric `judge/cost_usd` is absent. @default none */
  readonly prices?: JudgePrices | undefined;
  /**
   * Answers one request.
   *
   * @param request - Chat request; its `model` equals `id`.
   * @param options - Signal that aborts the request.
   * @returns the completion; the text of the first choice is the answer.
   */
  complete(request: ChatCompletionRequest, options?: { readonly signal?: AbortSignal | undefined }): Promise<ChatCompletion>;
}

/** Returns the cost of a completion in US dollars. */
export function costOf(
  { inputPerMillion, outputPerMillion }: JudgePrices,
  usage: Pick<Usage, "prompt_tokens" | "completion_tokens">,
): number {
  return (usage.prompt_tokens * inputPerMillion + usage.completion_tokens * outputPerMillion) / 1e6;
}
