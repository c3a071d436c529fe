/** State of the models and policies that an engine on a Tinker-protocol server holds. */
import type { ModelHandle } from "../port.ts";
import type { SamplingTarget } from "./sampler.ts";
import type { ServerModel } from "./server-model.ts";
import type { Trainable } from "./trainable.ts";

/** Model of a session. */
export interface LiveModel {
  readonly handle: ModelHandle;
  readonly rank: number;
  readonly trainable: Trainable;
  /** Names of saved weights. The object is replaced when the weights change, so that a save in progress sets the name on the old one. */
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
  readonly own: ServerModel | null;
  requests: number;
  running: number;
  isReleased: boolean;
}
