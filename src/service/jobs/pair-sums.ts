/** Log-probabilities of preference pairs, for references and validations. */
import type { Engine, ModelHandle } from "../../engine/port.ts";
import { pairSums, preferenceRows, type PairValues, type SequencePair } from "../../learner/index.ts";

/**
 * Pairs per forward pass, which bounds the log-probabilities in memory. Not configurable, because the last bits of the result may depend on
 * the batch: a repeated computation must give the same bits.
 */
const PAIRS_PER_PASS = 64;

/** Sums the log-probabilities of pairs over their trained tokens, with the current weights of a model; see `pairSums`. */
export async function measurePairs(
  { engine, handle, signal }: { readonly engine: Engine; readonly handle: ModelHandle; readonly signal: AbortSignal },
  pairs: readonly SequencePair[],
): Promise<PairValues[]> {
  const sums: PairValues[] = [];
  for (let start = 0; start < pairs.length; start += PAIRS_PER_PASS) {
    const { rows } = preferenceRows(pairs.slice(start, start + PAIRS_PER_PASS));
    sums.push(...pairSums(rows, await engine.forward(handle, rows, { signal })));
  }
  return sums;
}
