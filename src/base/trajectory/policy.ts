/** Policies: the weights that a rollout samples its turns from. */

import type { ChatCompletion, ChatCompletionRequest } from "../schema/index.ts";

/**
 * Fixed set of weights that answers chat requests. Immutable: a policy object never changes to another step.
 *
 * `model.policy(step)` creates policies; any object of this shape can be sampled from.
 *
 * @example
 * ```ts
 * // A served model that is not trained here, such as a base model or a judge.
 * const judge: Policy = {
 *   id: "whetstone-tiny",
 *   step: null,
 *   complete: (request, options) => service.chat.completions.create({ ...request, stream: false }, options),
 * };
 * ```
 */
export interface Policy {
  /** Value of the request's `model` field, e.g. `team/demo/reverse:step7`. */
  readonly id: string;
  /** Step of the checkpoint; null for weights without one, such as a base model. */
  readonly step: number | null;
  /**
   * Whether `complete` keeps no reference to its result. If true, a trajectory stores the result itself and saves the time of a copy.
   * Otherwise it stores a copy.
   *
   * @default false
   */
  readonly handsOver?: boolean | undefined;
  /**
   * Sends one request; its `model` already equals `id`. Errors with `retryable` set are retried if the run has `retries`.
   *
   * @param request - Chat request with `logprobs` and `return_token_ids`, which training needs.
   * @param options - `signal` aborts the request. `onRateLimit` is called after a 429 response with the wait in milliseconds that the
   *   service requires, or null; it resolves to true when the request may be sent again, and to false if the error should be thrown. A
   *   rollout sets it, so that its request waits with the rate limiter of the run. Pass both to `service.chat.completions.create`; a policy
   *   that ignores `onRateLimit` throws the error, and its rollout starts again.
   * @returns the completion; the first choice is the sampled turn.
   */
  complete(
    request: ChatCompletionRequest,
    options?: {
      readonly signal?: AbortSignal | undefined;
      readonly onRateLimit?: ((retryAfterMs: number | null) => Promise<boolean>) | undefined;
    },
  ): Promise<ChatCompletion>;
}

/** Parses the step from the model name of a response (`…:step7` gives 7). @returns The step; null for a name without one. */
export function stepOf(model: string): number | null {
  const match = /:step(\d+)$/.exec(model);
  return match === null ? null : Number(match[1]);
}
