/** How attention cuts the queries of rows. Graphs are built for one way, so there are few of them. */
import type { Batch } from "./batch.ts";

/** How the queries of a rectangle's rows are cut. */
export interface QueryBlocks {
  readonly count: number;
  /** Whether the gradient computes probabilities anew. */
  readonly recompute: boolean;
}

/** How attention runs over the rectangles of a batch: all that a graph is built for besides the model. */
export interface GraphShape {
  /** Null where lanes continue no prompt. */
  readonly prompts: QueryBlocks | null;
  readonly lanes: QueryBlocks;
}

/**
 * Into how many blocks the queries of a row of `time` tokens are cut. Keys behind a block are never computed, so more blocks are
 * less work and more kernels. A power of two, so that rows of many lengths run through few graphs.
 */
export function queryBlocks(time: number): number {
  if (time <= 96) return 1;
  if (time <= 256) return time <= 128 ? 2 : 4;
  return 2 ** Math.ceil(Math.log2(time / (time <= 1024 ? 128 : 256)));
}

/**
 * What the graph of a batch is built for. Probabilities are kept until those of a query would outgrow everything else that is
 * kept of it: where rows, or the prompts they continue, are longer than 512, or both longer than 128.
 */
export function graphShape({ prompts, lanes }: Pick<Batch, "prompts" | "lanes">): GraphShape {
  const [before, count] = [prompts ? queryBlocks(prompts.time) : 0, queryBlocks(lanes.time)];
  return {
    prompts: prompts && { count: before, recompute: before > 4 },
    lanes: { count, recompute: Math.max(before, count) > 4 || Math.min(before, count) === 4 },
  };
}

/** Padded lengths are multiples of this for each block of queries: few distinct shapes, and aligned rows. */
const TIME_STEP = 8;

/** The length that a row is padded to; at least one step. */
export function paddedTime(length: number): number {
  const step = TIME_STEP * queryBlocks(length);
  return Math.max(step, Math.ceil(length / step) * step);
}
