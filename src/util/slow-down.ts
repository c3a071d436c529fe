/**
 * Told that a service has no room (429), with the milliseconds it asked for, or null. Resolves when the request may be sent
 * again: true, or false when it was told too often and the failure should pass. Rejects with the signal's reason.
 */
export type SlowDown = (retryAfterMs: number | null) => Promise<boolean>;

const bySignal = new WeakMap<AbortSignal, SlowDown>();

/**
 * Makes `slowDown` decide over requests that are sent with this very signal.
 *
 * The signal is what a rollout hands to every client anyway. So a request that is refused can wait in its place, without its
 * rollout being played again, and whoever starts the rollouts learns of it at once.
 */
export function attachSlowDown(signal: AbortSignal, slowDown: SlowDown): void {
  bySignal.set(signal, slowDown);
}

/** What decides over requests with this signal, if anything does. */
export function slowDownOf(signal: AbortSignal | undefined): SlowDown | undefined {
  return signal === undefined ? undefined : bySignal.get(signal);
}
