/** State of the models and policies that an engine on a Tinker-protocol server holds. */
import type { ModelHandle } from "../port.ts";
import type { SamplingTarget } from "./sampler.ts";
import type { ServerModel } from "./server-model.ts";
import type { Trainable } from "./trainable.ts";

/** Trainable model of a session. */
export interface LiveModel {
  readonly handle: ModelHandle;
  readonly rank: number;
  readonly trainable: Trainable;
  /**
   * Names of saved weights. When the weights change, a new object replaces this one, so that a save in progress does not name outdated
   * weights.
   */
  saved: SavedNames;
}

/** Names on the server of a model's saved training state (weights and moments) and sampling weights; null until saved. */
export interface SavedNames {
  weights: string | null;
  sampler: string | null;
}

/** Returns the names of weights that were not saved yet. */
export const unsaved = (): SavedNames => ({ weights: null, sampler: null });

/** Policy of a session. */
export interface LivePolicy {
  readonly base: string;
  readonly target: SamplingTarget;
  /** Model on the server that only this policy uses; null if the policy needs none. */
  readonly ownModel: ServerModel | null;
  /** Number of requests so far, also ended ones. */
  requests: number;
  /** Number of requests that have not ended. */
  running: number;
  /** Whether new requests are refused. */
  isReleased: boolean;
}
