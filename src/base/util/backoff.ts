/** Waits between retries. */

/** Parameters of exponential backoff. */
export interface BackoffOptions {
  /** First wait in milliseconds. @default 250 */
  readonly baseMs?: number | undefined;
  /** Max wait in milliseconds. @default 8000 */
  readonly maxMs?: number | undefined;
  /** Random numbers in [0, 1). @default Math.random */
  readonly random?: (() => number) | undefined;
}

/**
 * Returns the milliseconds to wait before retry number `attempt` (0 = the first): `min(maxMs, baseMs · 2^attempt) · u`, `u` uniform in
 * [0.5, 1).
 *
 * The jitter keeps clients that failed together from retrying together.
 */
export function backoffMs(attempt: number, { baseMs = 250, maxMs = 8000, random = Math.random }: BackoffOptions = {}): number {
  // The exponent is bounded so that the power stays finite.
  return Math.min(maxMs, baseMs * 2 ** Math.min(attempt, 30)) * (0.5 + random() / 2);
}
