/** Periodic work of the service, such as cleanups. */

/**
 * Calls `work` at once and then every `intervalMs`, one call after the other. The timer does not keep the process alive.
 *
 * @param work - Must not reject.
 * @returns a function that stops the calls, and resolves when the last one has ended.
 */
export function repeatEvery(work: () => Promise<void>, intervalMs: number): () => Promise<void> {
  let lastCall = work();
  const timer = setInterval(() => {
    lastCall = lastCall.then(work);
  }, intervalMs).unref();
  return () => {
    clearInterval(timer);
    return lastCall;
  };
}

/**
 * Records every `intervalMs`, see {@link repeatEvery}.
 *
 * @param record - Must not reject.
 * @returns a function that stops, after one more record of the latest values.
 */
export function recordEvery(record: () => Promise<void>, intervalMs: number): () => Promise<void> {
  const stop = repeatEvery(record, intervalMs);
  return async () => {
    await stop();
    await record();
  };
}
