/** Limits of time that end when a test says so, however long the work before takes. */
import { onTestFinished, vi } from "vitest";

/**
 * Replaces `AbortSignal.timeout(ms)` by a signal without a timer, for this number of milliseconds alone and until the end of the test.
 *
 * @returns a function that aborts the signal as the timer would.
 */
export function manualTimeout(ms: number): () => void {
  const controller = new AbortController();
  const timeout = AbortSignal.timeout.bind(AbortSignal);
  const spy = vi.spyOn(AbortSignal, "timeout").mockImplementation((given) => (given === ms ? controller.signal : timeout(given)));
  onTestFinished(() => spy.mockRestore());
  return () => controller.abort(new DOMException("The operation was aborted due to timeout", "TimeoutError"));
}

/** Stops the timers of `setTimeout` until the end of the test: they fire when `vi.advanceTimersByTime` says so. Sockets work as before. */
export function stopTimers(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
}
