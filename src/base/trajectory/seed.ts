/** Seeds of the requests of one rollout. */

import { createHash } from "node:crypto";

/** Position of a turn in its trajectory. */
export interface TurnPosition {
  /** Path of the conversation: `[]` is the main one, `[1]` its second `history()`, `[1, 0]` the first `history()` of `[1]`. */
  readonly path: readonly number[];
  /** Number of turns that this conversation sampled before, compacted ones included. */
  readonly turn: number;
}

/**
 * Derives the seed of a turn's request from the `seed` passed to `sample`, so that one seed can be passed to every turn of a rollout
 * without repeating its random numbers. The first turn of the main conversation uses `seed` itself, every other turn the first 48 bits of
 * SHA-256 over `turn:{seed}:{path joined by "."}:{turn}`. Depends only on the arguments, not on the order in which sub-agents run.
 */
export function turnSeed(seed: number | bigint, { path, turn }: TurnPosition): number | bigint {
  if (path.length === 0 && turn === 0) return seed;
  return createHash("sha256")
    .update(`turn:${seed}:${path.join(".")}:${turn}`)
    .digest()
    .readUIntBE(0, 6);
}
