/** How attention cuts the queries of a row. */
export interface QueryBlocks {
  readonly count: number;
  /** Whether the gradient computes probabilities anew. */
  readonly recompute: boolean;
}

/**
 * Into how many blocks the queries of a row of `time` tokens are cut, which look at `before` keys besides their own. Keys
 * behind a block are never computed, so more blocks are less work and more kernels. Probabilities are kept until those of a
 * query would outgrow everything else that is kept of it.
 */
export function queryBlocks(time: number, before = 0): QueryBlocks {
  const recompute = before + time / 2 > 256;
  if (time <= 96) return { count: 1, recompute };
  if (time <= 256) return { count: Math.ceil(time / 64), recompute };
  return { count: Math.ceil(time / (time <= 1024 ? 128 : 256)), recompute };
}

/** Padded lengths are multiples of this for each block of queries: few distinct shapes, and aligned rows. */
const TIME_STEP = 8;

/** The length that a row is padded to; at least one step. */
export function paddedTime(length: number): number {
  const step = TIME_STEP * queryBlocks(length).count;
  return Math.max(step, Math.ceil(length / step) * step);
}
