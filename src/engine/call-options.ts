/** Options of the calls of an engine. */
import type { RequestGroup } from "../base/util/request-group.ts";

/** Options of every call of an engine that computes. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of `Engine.sample`. */
export interface SamplingOptions extends CallOptions {
  /**
   * Group of the request, such as all requests of one HTTP request. Clients take turns, and so do the groups of a client: one with many or
   * long prompts does not delay the others, and gives up rows for them. Never changes a token; engines that forward requests to another
   * server leave the order to it.
   * @default a group of its own, of a client that all such requests share
   */
  readonly group?: RequestGroup | undefined;
}
