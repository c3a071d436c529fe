import { createHash } from "node:crypto";

/** A turn's place in its trajectory. */
export interface TurnPlace {
  /** Which conversation: `[]` is the main one, `[1]` its second `history()`, `[1, 0]` the first of that one. */
  readonly path: readonly number[];
  /** How many turns this conversation sampled before, compacted ones included. */
  readonly turn: number;
}

/**
 * The seed that a turn's request carries when `sample` is given `seed`, so that one seed can be passed to every turn of a rollout
 * without repeating its random numbers: the first turn of the main conversation takes `seed` itself, every other the first 48 bits of
 * SHA-256 over `turn:{seed}:{path joined by "."}:{turn}`. A function of its arguments, not of the order in which sub-agents run.
 */
export function turnSeed(seed: number | bigint, { path, turn }: TurnPlace): number | bigint {
  if (path.length === 0 && turn === 0) return seed;
  return createHash("sha256")
    .update(`turn:${seed}:${path.join(".")}:${turn}`)
    .digest()
    .readUIntBE(0, 6);
}
