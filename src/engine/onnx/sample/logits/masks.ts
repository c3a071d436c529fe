/** Sampling steps that forbid tokens. Each works in place on one row of logits `[V]`; a forbidden token has the logit −∞. */
import type { BannedSequences } from "./lists.ts";

/**
 * Forbids every token that is not allowed.
 *
 * @param allowed - 1 for each allowed id.
 */
export function allowOnly(logits: Float32Array, allowed: Uint8Array): void {
  for (let id = 0; id < logits.length; id++) if (allowed[id] !== 1) logits[id] = -Infinity;
}

/**
 * Forbids the last token of every sequence if its other tokens were sampled last, in order. A sequence of one token is always forbidden;
 * the prompt does not count.
 *
 * @param outputs - Tokens sampled so far.
 */
export function banSequences(logits: Float32Array, { tokens, starts }: BannedSequences, outputs: readonly number[]): void {
  for (let index = 0; index + 1 < starts.length; index++) {
    const [first, last] = [starts[index]!, starts[index + 1]! - 1];
    const start = outputs.length - (last - first);
    if (start < 0) continue;
    let matched = 0;
    while (start + matched < outputs.length && outputs[start + matched] === tokens[first + matched]) matched++;
    if (start + matched === outputs.length) logits[tokens[last]!] = -Infinity;
  }
}

/** Forbids single tokens. */
export function ban(logits: Float32Array, ids: readonly number[]): void {
  for (const id of ids) logits[id] = -Infinity;
}
