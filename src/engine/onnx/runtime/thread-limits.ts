/** Conditions for matrix products that are bit-identical across thread counts (measured, `docs/notebook/2026-11-20-bits-of-forward-operations.md`). */

/** Maximum number of threads with bit-identical results. */
export const MAX_THREADS = 4;

/** Minimum number of columns per thread. In narrower slices the runtime splits the inner dimension differently, which changes the sum. */
export const MIN_SLICE_COLUMNS = 80;

/** Minimum number of rows of a product. A product of a single row uses another code path and may round differently. */
export const MIN_ROWS = 2;
