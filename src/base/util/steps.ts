/**
 * Interruptible computations: a generator that computes, yields after each small step, and returns its result. Code with a thread of its
 * own runs all steps at once; code on a shared thread runs the same steps in time slices.
 */

/** A computation that can be interrupted between its steps. */
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
  /** Length of a time slice in milliseconds; a single step may take longer. @default 5 */
  readonly sliceMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Runs all steps, and yields to the event loop after each time slice.
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
