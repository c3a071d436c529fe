/** Steps that forbid tokens. Each works in place on one row of logits `[V]`; a forbidden token has the logit −∞. */

/** Forbids every token that is not allowed. */
export function allowOnly(logits: Float32Array, allowed: ReadonlySet<number>): void {
  for (let id = 0; id < logits.length; id++) if (!allowed.has(id)) logits[id] = -Infinity;
}

/**
 * Forbids the last token of every sequence whose other tokens are what was sampled last. A sequence of one token is always
 * forbidden; the prompt does not count.
 *
 * @param outputs - The tokens sampled so far.
 */
export function banSequences(logits: Float32Array, sequences: readonly (readonly number[])[], outputs: readonly number[]): void {
  for (const sequence of sequences) {
    const start = outputs.length - (sequence.length - 1);
    if (start < 0) continue;
    let at = 0;
    while (start + at < outputs.length && outputs[start + at] === sequence[at]) at++;
    if (start + at === outputs.length) logits[sequence[at]!] = -Infinity;
  }
}

/** Forbids single tokens. */
export function ban(logits: Float32Array, ids: readonly number[]): void {
  for (const id of ids) logits[id] = -Infinity;
}
