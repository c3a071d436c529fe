/** Attention masks of gradient graphs. */
import type { Batch, Rectangle } from "./batch.ts";
import { forEachFamily } from "./inputs.ts";
import { queryBlocks } from "./query-blocks.ts";

/** Term added to a masked score, which makes its exponential exactly 0. */
export const MASKED = -1e9;

/** Attention mask, `[B or 1, 1, copies·queries, keys]`: 0 where a query may attend, {@link MASKED} elsewhere. */
export interface Mask {
  readonly data: Float32Array;
  readonly shape: readonly [number, number, number, number];
}

/**
 * Builds the causal masks of a batch's prompts, one per block of queries. Padding follows all tokens of a prompt, so the causal mask
 * already hides it.
 *
 * @param copies - Query heads per key head.
 */
export function promptMasks({ time }: Rectangle, copies: number): Mask[] {
  return causalMasks(time, 0, copies);
}

/**
 * Builds the masks of a batch's packed rows, one per block of queries. The keys of a row's prompt precede its own keys. The masks are
 * causal and hide the continuations of a packed row from one another.
 *
 * @param copies - Query heads per key head.
 */
export function laneMasks(batch: Batch, copies: number): Mask[] {
  const before = batch.prompts?.time ?? 0;
  const causal = causalMasks(batch.lanes.time, before, copies);
  return before === 0 ? causal : causal.map((mask, block) => branchMask(batch, mask, block * (batch.lanes.time / causal.length), copies));
}

/** Builds the causal masks of rows of `time` queries, which attend to `before` prompt keys and to their own keys up to themselves. */
function causalMasks(time: number, before: number, copies: number): Mask[] {
  const count = queryBlocks(time);
  const size = time / count;
  return Array.from({ length: count }, (_, block) => {
    const start = before + block * size;
    const keys = start + size;
    const data = new Float32Array(copies * size * keys);
    for (let row = 0; row < copies * size; row++) data.fill(MASKED, row * keys + start + (row % size) + 1, (row + 1) * keys);
    return { data, shape: [1, 1, copies * size, keys] };
  });
}

/**
 * Expands `causal` to every packed row of a batch, and hides the padding of its prompt and, from each continuation, the continuations
 * before it.
 *
 * @param start - First query of the block, counted in its packed row.
 */
function branchMask(batch: Batch, causal: Mask, start: number, copies: number): Mask {
  const { count } = batch.lanes;
  const before = batch.prompts!.time;
  const [, , lines, keys] = causal.shape;
  const size = lines / copies;
  const data = new Float32Array(count * causal.data.length);
  for (let lane = 0; lane < count; lane++) data.set(causal.data, lane * causal.data.length);
  forEachFamily(batch, ({ shared, lanes, branches }, _prompt, firstLane) => {
    for (let line = firstLane * lines; line < (firstLane + lanes) * lines; line++)
      data.fill(MASKED, line * keys + shared, line * keys + before);
    for (const branch of branches) {
      const end = Math.min(branch.start + branch.length, start + size);
      for (let copy = 0; copy < copies; copy++) {
        for (let query = Math.max(branch.start, start); query < end; query++) {
          const line = ((firstLane + branch.lane) * lines + copy * size + query - start) * keys;
          data.fill(MASKED, line + before, line + before + branch.start);
        }
      }
    }
  });
  return { data, shape: [count, 1, lines, keys] };
}
