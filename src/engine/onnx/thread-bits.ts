/** When the bits of a product do not depend on how many threads compute it (measured, `docs/explanation/engine.md`, section 1). */

/** Up to so many threads. */
export const MOST_THREADS = 4;

/** A slice of at least so many columns is summed like the whole matrix; of narrower ones the inner dimension is cut otherwise. */
export const MIN_SLICE = 80;

/** A product of a single row takes another way than one of several: so many rows run at least. */
export const MIN_ROWS = 2;
