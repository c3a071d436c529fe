/**
 * Told that a service has no room (429), with the milliseconds it asked for, or null. Resolves when the request may be sent
 * again: true, or false when it was told too often and the failure should pass. Rejects with the signal's reason.
 */
export type SlowDown = (retryAfterMs: number | null) => Promise<boolean>;

/** A property and not a WeakMap: one is set per rollout, and weak tables make every garbage collection longer. */
const SLOW_DOWN = Symbol("whetstone.slowDown");

type Attached = AbortSignal & { [SLOW_DOWN]?: SlowDown };

/**
 * Makes `slowDown` decide over requests that are sent with this very signal.
 *
 * The signal is what a rollout hands to every client anyway. So a request that is refused can wait in its place, without its
 * rollout being played again, and whoever starts the rollouts learns of it at once.
 */
export function attachSlowDown(signal: AbortSignal, slowDown: SlowDown): void {
  (signal as Attached)[SLOW_DOWN] = slowDown;
}

/** What decides over requests with this signal, if anything does. */
export function slowDownOf(signal: AbortSignal | undefined): SlowDown | undefined {
  return (signal as Attached | undefined)?.[SLOW_DOWN];
}
