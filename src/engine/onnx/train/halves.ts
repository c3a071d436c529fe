/** Data-parallel halves of a step's batches, which two threads compute in parallel. */
import type { Row } from "../../port.ts";
import { type TrainBatch, batchCost } from "./batch.ts";
import { getOrThrow, itemAt } from "../../../base/util/values.ts";

/**
 * Splits batches into two halves of about equal cost, each in the order of the batches. A pure function of the batches: gradients are
 * summed within a half and then over the halves, so every bit of the sum is the same for any number of threads.
 */
export function splitInHalves(batches: readonly TrainBatch[]): [TrainBatch[], TrainBatch[]] {
  const totals: [number, number] = [0, 0];
  const halfOf = new Map<TrainBatch, number>();
  for (const batch of batches.toSorted((a, b) => batchCost(b) - batchCost(a))) {
    const lighter = totals[1] < totals[0] ? 1 : 0;
    halfOf.set(batch, lighter);
    totals[lighter] += batchCost(batch);
  }
  return [batches.filter((batch) => halfOf.get(batch) === 0), batches.filter((batch) => halfOf.get(batch) === 1)];
}

/** Returns the rows that some batches need, and the batches with their members re-indexed to these rows. */
export function rowsOfHalf(rows: readonly Row[], batches: readonly TrainBatch[]): { rows: Row[]; batches: TrainBatch[] } {
  const newIndices = new Map<number, number>();
  const newIndexOf = (index: number) => {
    if (!newIndices.has(index)) newIndices.set(index, newIndices.size);
    return getOrThrow(newIndices, index);
  };
  const picked = batches.map((batch) => ({
    ...batch,
    groups: batch.groups.map((group) => ({ ...group, members: group.members.map(newIndexOf) })),
  }));
  return { rows: [...newIndices.keys()].map((index) => itemAt(rows, index)), batches: picked };
}

/** Adds `part` to `sum` in place, element by element. */
export function addTo(sum: Float32Array, part: Float32Array): void {
  for (let i = 0; i < sum.length; i++) sum[i]! += part[i]!;
}
