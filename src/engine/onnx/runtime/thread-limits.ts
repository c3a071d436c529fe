/**
 * Conditions for matrix products that are bit-identical across thread counts (measured,
 * `docs/notebook/2026-11-20-bits-of-forward-operations.md`).
 */

/** Maximum number of threads with bit-identical results. */
export const MAX_THREADS = 4;

/** Minimum number of columns per thread. In narrower slices the runtime splits the inner dimension differently, which changes the sum. */
export const MIN_SLICE_COLUMNS = 80;

/**
 * Minimum number of rows of a product. A product of a single row uses another code path and may round differently, unless its matrix is a
 * constant in float32 or in 8 bits. In 4 bits it depends on the processor: with AVX2, rows in 8 bits also round differently.
 */
export const MIN_ROWS = 2;

/** Rows that a product with a matrix in blocks computes at a time. */
const BLOCK_PRODUCT_ROWS = 128;

/**
 * Returns the number of rows, at least `count`, with which no product has a single row, or a single row left after a multiple of the rows
 * that are computed at a time.
 */
export function productRows(count: number): number {
  return count % BLOCK_PRODUCT_ROWS === 1 ? count + 1 : count;
}

/**
 * Min rows of a matrix product with a narrow result. With fewer rows the runtime cuts the product differently for each thread count, which
 * changes its last bits; with at least this many rows it cuts along rows, and the bits do not depend on the thread count (up to 4).
 */
export const MIN_PRODUCT_ROWS = 320;

/** Min width at which a result is cut into column slices that sum exactly as the whole matrix does. */
export const WIDE = MAX_THREADS * MIN_SLICE_COLUMNS;
