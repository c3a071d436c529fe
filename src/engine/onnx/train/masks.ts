/** What a query may look at: attention masks and the blocks that queries are cut into. */
import type { Batch } from "./batch.ts";
import type { QueryBlocks } from "./gradient-graph.ts";

/** Added to a score that must not count: its exponential is exactly 0. */
export const MASKED = -1e9;

/** An attention mask, `[B or 1, 1, copies·queries, keys]`: 0 where a query may look. */
export interface Mask {
  readonly data: Float32Array;
  readonly shape: readonly [number, number, number, number];
}

/**
 * Into how many blocks the queries of a row of `time` tokens are cut. Keys behind a block are never computed, so more
 * blocks are less work and more kernels. Short rows keep their probabilities; from 256 tokens on these would outgrow
 * everything else that is kept.
 */
export function queryBlocks(time: number): QueryBlocks {
  if (time <= 96) return { count: 1, recompute: false };
  if (time <= 256) return { count: Math.ceil(time / 64), recompute: false };
  return { count: Math.ceil(time / (time <= 1024 ? 128 : 256)), recompute: true };
}

/** The masks of a batch, one per block of queries: causal, and between branches of a packed row nothing. */
export function batchMasks(batch: Batch, copies: number): Mask[] {
  const { count } = queryBlocks(batch.time);
  const size = batch.time / count;
  const isPlain = batch.rows.every((row) => row.members.length === 1);
  return Array.from({ length: count }, (_, block) => {
    const causal = causalBlock(size, block * size, copies);
    return isPlain ? causal : branchMask(batch, causal, block * size, copies);
  });
}

/** The causal mask of the queries `[start, start + size)`, which look at the keys `[0, start + size)`. */
function causalBlock(size: number, start: number, copies: number): Mask {
  const keys = start + size;
  const data = new Float32Array(copies * size * keys);
  for (let row = 0; row < copies * size; row++) data.fill(MASKED, row * keys + start + (row % size) + 1, (row + 1) * keys);
  return { data, shape: [1, 1, copies * size, keys] };
}

/** `causal` for every row of a batch, with what lies between the shared tokens and a branch hidden from it. */
function branchMask({ rows, batch }: Batch, causal: Mask, start: number, copies: number): Mask {
  const [, , lines, keys] = causal.shape;
  const size = lines / copies;
  const data = new Float32Array(batch * causal.data.length);
  for (let b = 0; b < batch; b++) data.set(causal.data, b * causal.data.length);
  rows.forEach((row, b) => {
    row.starts.forEach((branch, member) => {
      const end = Math.min(row.starts[member + 1] ?? row.length, start + size);
      for (let copy = 0; copy < copies; copy++) {
        for (let query = Math.max(branch, start); query < end; query++) {
          const line = (b * lines + copy * size + query - start) * keys;
          data.fill(MASKED, line + row.shared, line + branch);
        }
      }
    });
  });
  return { data, shape: [batch, 1, lines, keys] };
}
