/**
 * Callback after a 429 response, with the wait requested by the service in milliseconds, or null. Resolves to true when the request may be
 * sent again, or to false if there were too many such responses and the error should be thrown. Rejects with the signal's reason.
 */
export type SlowDown = (retryAfterMs: number | null) => Promise<boolean>;

/**
 * Property key, the same in every copy of the package. A property rather than a WeakMap: one callback is attached per rollout, and weak
 * tables make every garbage collection longer.
 */
const SLOW_DOWN = Symbol.for("whetstone.slow-down");

type Attached = AbortSignal & { [SLOW_DOWN]?: SlowDown };

/**
 * Attaches `slowDown` to a signal. It decides about retries of all requests that are sent with this signal object.
 *
 * A rollout passes its signal to every client anyway. A rejected request can therefore wait without a restart of its rollout, and the
 * rollout runner learns of the rejection at once.
 */
export function attachSlowDown(signal: AbortSignal, slowDown: SlowDown): void {
  (signal as Attached)[SLOW_DOWN] = slowDown;
}

/** Returns the callback attached to `signal`, or undefined. */
export function slowDownOf(signal: AbortSignal | undefined): SlowDown | undefined {
  return (signal as Attached | undefined)?.[SLOW_DOWN];
}
