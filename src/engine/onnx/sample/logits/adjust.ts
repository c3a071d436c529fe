/** Steps that move the logits of some tokens. Each works in place on one row of logits `[V]`. */
import type { LogitBias } from "./lists.ts";

/** Adds to the logit of each token its bias. */
export function addBias(logits: Float32Array, { ids, values }: LogitBias): void {
  for (let at = 0; at < ids.length; at++) logits[ids[at]!]! += values[at]!;
}

/**
 * Makes each token less likely that was seen before: a positive logit is divided by the penalty, any other multiplied. This
 * step alone depends on where the zero of the logits is.
 *
 * @param penalty - Above 0; below 1 it makes the tokens likelier.
 * @source Keskar et al., "CTRL: A conditional transformer language model for controllable generation", arXiv:1909.05858, section 4.1.
 */
export function penalizeRepetition(logits: Float32Array, seen: Iterable<number>, penalty: number): void {
  for (const id of seen) logits[id] = logits[id]! > 0 ? logits[id]! / penalty : logits[id]! * penalty;
}

/** How often a token was sampled, by its id; tokens that never were are absent. */
export type OutputCounts = ReadonlyMap<number, number>;

/** Takes `penalty` from the logit of a token for each time it was sampled. */
export function penalizeFrequency(logits: Float32Array, counts: OutputCounts, penalty: number): void {
  for (const [id, count] of counts) logits[id]! -= penalty * count;
}

/** Takes `penalty` once from the logit of each token that was sampled. */
export function penalizePresence(logits: Float32Array, counts: OutputCounts, penalty: number): void {
  for (const id of counts.keys()) logits[id]! -= penalty;
}
