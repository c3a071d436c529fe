/**
 * Work in steps: a generator that computes, yields after each small piece, and returns its result. Whoever has the thread to itself
 * runs it to its end; whoever shares the thread runs the same code in slices.
 */

/** Work that can be interrupted between its steps. */
export type Steps<T> = Generator<void, T, void>;

/** Runs all steps at once. */
export function runSteps<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}

/** Options of {@link runStepsInSlices}. */
export interface SliceOptions {
  /** Milliseconds after which others are let in; a single step may take longer. @default 5 */
  readonly sliceMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs all steps, giving the event loop a turn after each slice of time.
 *
 * @throws the signal's reason, between two slices.
 */
export async function runStepsInSlices<T>(steps: Steps<T>, { sliceMs = 5, signal }: SliceOptions = {}): Promise<T> {
  let startedMs = performance.now();
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
    if (performance.now() - startedMs < sliceMs) continue;
    await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
    startedMs = performance.now();
  }
}
