import { hash, randomInt } from "node:crypto";

/** Seeds are integers below this: exact in JavaScript and in every JSON reader. */
const SEEDS = 2 ** 48;

/** A seed for one rollout: the first 48 bits of SHA-256 over the parts. A function of its arguments, not of the order of running. */
export function rolloutSeed(seed: number, scenario: number, rollout: number): number {
  return hash("sha256", `rollout:${seed}:${scenario}:${rollout}`, "buffer").readUIntBE(0, 6);
}

/** A seed nobody chose. */
export function randomSeed(): number {
  return randomInt(SEEDS - 1);
}
