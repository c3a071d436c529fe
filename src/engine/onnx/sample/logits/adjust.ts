/** Sampling steps that change the logits of some tokens. Each works in place on one row of logits `[V]`. */
import type { LogitBias } from "./lists.ts";

/** Adds each token's bias to its logit. */
export function addBias(logits: Float32Array, { ids, values }: LogitBias): void {
  for (let index = 0; index < ids.length; index++) logits[ids[index]!]! += values[index]!;
}

/**
 * Makes each previously seen token less likely: a positive logit is divided by the penalty, any other multiplied. Only this step depends on
 * the zero point of the logits.
 *
 * @param penalty - Above 0; below 1 it makes the tokens likelier.
 * @source Keskar et al., "CTRL: A conditional transformer language model for controllable generation", arXiv:1909.05858, section 4.1.
 */
export function penalizeRepetition(logits: Float32Array, seen: Iterable<number>, penalty: number): void {
  for (const id of seen) logits[id] = logits[id]! > 0 ? logits[id]! / penalty : logits[id]! * penalty;
}

/** Number of times each token was sampled, by its id; tokens never sampled are absent. */
export type OutputCounts = ReadonlyMap<number, number>;

/** Subtracts `penalty` from a token's logit for each time the token was sampled. */
export function penalizeFrequency(logits: Float32Array, counts: OutputCounts, penalty: number): void {
  for (const [id, count] of counts) logits[id]! -= penalty * count;
}

/** Subtracts `penalty` once from the logit of each token that was sampled. */
export function penalizePresence(logits: Float32Array, counts: OutputCounts, penalty: number): void {
  for (const id of counts.keys()) logits[id]! -= penalty;
}
