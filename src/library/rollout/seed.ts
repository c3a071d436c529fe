/** Seeds of rollouts. */
import { hash, randomInt } from "node:crypto";

/** Exclusive upper bound of seeds. Below 2^53, so that a seed is exact in JavaScript and in every reader of JSON. */
const SEED_LIMIT = 2 ** 48;

/**
 * Derives the seed of a rollout: the first 48 bits of SHA-256 over the arguments. Does not depend on execution order.
 *
 * @param seed - Seed of the run.
 * @param scenario - Index of the scenario.
 * @param rollout - Index of the rollout in its group.
 * @returns Integer of at least 0 and below 2^48.
 * @example
 * ```ts
 * rolloutSeed(7, 0, 3); // the seed of the fourth rollout of the first scenario
 * ```
 */
export function rolloutSeed(seed: number, scenario: number, rollout: number): number {
  return hash("sha256", `rollout:${seed}:${scenario}:${rollout}`, "buffer").readUIntBE(0, 6);
}

/** Returns a random seed. */
export function randomSeed(): number {
  // `randomInt` accepts ranges below 2^48 only.
  return randomInt(SEED_LIMIT - 1);
}
