/** Options of the calls of an engine. */

/** Options of every call of an engine that computes. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of `Engine.sample`. */
export interface SamplingOptions extends CallOptions {
  /**
   * Group of the request, such as all requests of one client or of one HTTP request. Groups take turns, so that a group with many or long
   * prompts does not delay the others. Never changes a token; engines that forward requests to another server leave the order to it.
   * @default a group of its own
   */
  readonly group?: number | undefined;
}
