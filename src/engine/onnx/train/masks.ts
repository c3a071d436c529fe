/**
 * Attention masks of gradient graphs. A line of a mask belongs to one query and one of its `copies`: the query heads that share a key head
 * are concatenated along the queries.
 */
import { MASKED } from "../graph/index.ts";
import type { TrainBatch, PaddedBlock } from "./batch.ts";
import { forEachGroup } from "./inputs.ts";

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
 * @param window - Max tokens that a token attends to, itself included. @default Infinity
 */
export function promptMasks(prompts: PaddedBlock, copies: number, window = Infinity): Mask[] {
  return causalMasks(prompts, 0, copies, window);
}

/**
 * Builds the masks of a batch's packed rows, one per block of queries. The keys of a row's prompt precede its own keys. The masks are
 * causal and hide the continuations of a packed row from one another.
 *
 * @param copies - Query heads per key head.
 * @param window - Max tokens that a token attends to, itself included. @default Infinity
 */
export function packedMasks(batch: TrainBatch, copies: number, window = Infinity): Mask[] {
  const promptKeys = batch.prompts?.time ?? 0;
  const causal = causalMasks(batch.packedRows, promptKeys, copies, window);
  return promptKeys === 0
    ? causal
    : causal.map((mask, block) => continuationMask(batch, mask, block * (batch.packedRows.time / causal.length), copies, window));
}

/**
 * Builds the causal masks of rows of `time` queries, which attend to `promptKeys` keys of a prompt and to their own keys up to themselves, as far as
 * the window reaches into their own keys.
 */
function causalMasks({ time, blocks: count }: PaddedBlock, promptKeys: number, copies: number, window: number): Mask[] {
  const size = time / count;
  return Array.from({ length: count }, (_, block) => {
    const start = promptKeys + block * size;
    const keys = start + size;
    const data = new Float32Array(copies * size * keys);
    for (let row = 0; row < copies * size; row++) {
      const query = start + (row % size);
      data.fill(MASKED, row * keys + query + 1, (row + 1) * keys);
      data.fill(MASKED, row * keys + promptKeys, row * keys + Math.max(promptKeys, query - window + 1));
    }
    return { data, shape: [1, 1, copies * size, keys] };
  });
}

/**
 * Expands `causal` to every packed row of a batch, and hides the padding of its prompt and, from each continuation, the continuations
 * before it and the prompt's tokens before the window.
 *
 * @param start - First query of the block, counted in its packed row.
 */
function continuationMask(batch: TrainBatch, causal: Mask, start: number, copies: number, window: number): Mask {
  const { count } = batch.packedRows;
  const promptKeys = batch.prompts!.time;
  const [, , lines, keys] = causal.shape;
  const size = lines / copies;
  const data = new Float32Array(count * causal.data.length);
  for (let packedRow = 0; packedRow < count; packedRow++) data.set(causal.data, packedRow * causal.data.length);
  forEachGroup(batch, ({ shared, packedRows, continuations }, _prompt, firstPackedRow) => {
    for (let line = firstPackedRow * lines; line < (firstPackedRow + packedRows) * lines; line++)
      data.fill(MASKED, line * keys + shared, line * keys + promptKeys);
    for (const continuation of continuations) {
      const end = Math.min(continuation.start + continuation.length, start + size);
      for (let copy = 0; copy < copies; copy++) {
        for (let query = Math.max(continuation.start, start); query < end; query++) {
          const line = ((firstPackedRow + continuation.packedRow) * lines + copy * size + query - start) * keys;
          data.fill(MASKED, line + promptKeys, line + promptKeys + continuation.start);
          data.fill(MASKED, line, line + firstPromptKey(shared, query - continuation.start, window));
        }
      }
    }
  });
  return { data, shape: [count, 1, lines, keys] };
}

/** Returns the first prompt key in the window of a continuation's token; the length of the prompt if all keys are outside the window. */
function firstPromptKey(shared: number, token: number, window: number): number {
  return Math.min(shared, Math.max(0, shared + token - window + 1));
}

/**
 * Keys that the queries of a block attend to: a range of prompt keys and a range of the row's own keys. Shapes `[rows, copies·queries]` have
 * one range per line.
 */
export interface KeyRange {
  /** First own key, `[rows, copies·queries]`. */
  readonly first: Float32Array;
  /** Last own key, `[rows, copies·queries]`. */
  readonly last: Float32Array;
  /** First prompt key, `[rows, copies·queries]`; after the last one if the window does not reach the prompt. */
  readonly firstPrompt: Float32Array;
  /** Last prompt key of all queries of a row, `[rows]`; −1 for none. */
  readonly lastPrompt: Float32Array;
  /** Queries of the block times `copies`. */
  readonly lines: number;
  readonly keys: number;
}

/**
 * Builds the ranges from which a graph computes the masks of a padded block itself: the same visible keys as {@link promptMasks} and
 * {@link packedMasks}, in memory linear in the number of tokens.
 *
 * @param copies - Query heads per key head.
 * @param window - Max tokens that a token attends to, itself included. @default Infinity
 */
export function attentionRanges(batch: TrainBatch, isPrompt: boolean, copies: number, window = Infinity): KeyRange[] {
  const { count, time, blocks } = isPrompt ? batch.prompts! : batch.packedRows;
  const promptKeys = isPrompt ? 0 : (batch.prompts?.time ?? 0);
  const size = time / blocks;
  const starts = new Int32Array(count * time);
  const lastPrompt = new Float32Array(count).fill(promptKeys - 1);
  if (promptKeys > 0)
    forEachGroup(batch, ({ shared, packedRows, continuations }, _prompt, firstPackedRow) => {
      lastPrompt.fill(shared - 1, firstPackedRow, firstPackedRow + packedRows);
      for (const { packedRow, start, length } of continuations) {
        const at = (firstPackedRow + packedRow) * time + start;
        starts.fill(start, at, at + length);
      }
    });
  return Array.from({ length: blocks }, (_, block) => {
    const lines = copies * size;
    const first = new Float32Array(count * lines);
    const last = new Float32Array(count * lines);
    const firstPrompt = new Float32Array(count * lines);
    for (let line = 0; line < count * lines; line++) {
      const query = block * size + (line % size);
      const row = Math.floor(line / lines);
      const start = starts[row * time + query]!;
      first[line] = promptKeys + Math.max(start, query - window + 1);
      last[line] = promptKeys + query;
      firstPrompt[line] = firstPromptKey(lastPrompt[row]! + 1, query - start, window);
    }
    return { first, last, firstPrompt, lastPrompt, lines, keys: promptKeys + (block + 1) * size };
  });
}
