/** Results of a pass, collected from the results of its batches. */
import { entropyCoefficientOf } from "../../../base/training-rows.ts";
import type { Logprobs, LossMetrics, LossSpec, Row } from "../../port.ts";
import { type TrainBatch, positionsIn } from "./batch.ts";
import type { BatchResult } from "./batch-inputs.ts";
import { forEachTrained } from "./inputs.ts";

/** Results of a pass: log-probabilities of every row, in the caller's order, and metrics. */
export interface PassResult {
  readonly logprobs: Logprobs[];
  readonly metrics: LossMetrics;
}

/** Collects the results of a step: log-probabilities per row, and metrics summed over all rows. */
export function collectResults(rows: readonly Row[], results: ReadonlyMap<TrainBatch, BatchResult>, loss: LossSpec | null): PassResult {
  const logprobs = rows.map((row) => new Float32Array(row.tokens.length));
  const metrics = { loss: 0, tokens: 0, entropy: 0, weightedEntropy: 0, positions: 0, padding: 0 };
  for (const [batch, result] of results) {
    let count = 0;
    forEachTrained(rows, batch, (_row, t, _position, index) => (logprobs[index]![t] = result.logprobs[count++]!));
    if (count === 0) continue;
    metrics.loss += result.loss;
    metrics.entropy += result.entropy;
    metrics.weightedEntropy += result.weightedEntropy;
    metrics.tokens += count;
    metrics.positions += positionsIn(batch);
    metrics.padding += positionsIn(batch) - batch.groups.reduce((sum, { length }) => sum + length, 0);
  }
  const { weightedEntropy, ...sums } = metrics;
  return { logprobs, metrics: entropyCoefficientOf(loss) > 0 ? { ...sums, weightedEntropy } : sums };
}
