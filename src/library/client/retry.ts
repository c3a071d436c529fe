/** Retries of a request: which errors permit another attempt, and how long to wait before it. */
import { isAbort, WhetstoneError } from "../../base/errors.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { delay } from "../../base/util/delay.ts";
import { isRetryableStatus } from "../../base/util/retryable.ts";
import { ConnectionError, HttpError } from "./errors.ts";

/**
 * Conditions for sending a request again.
 *
 * - `idempotent`: GET, PUT, DELETE, and POSTs with an `Idempotency-Key`. Retried on 408, 429, transient 5xx and every connection error.
 * - `unsent`: sampling, and job POSTs if the service does not honor keys. Retried on 429 and 503 (the service did not start) and on errors
 *   before the request was sent. A started stream is never repeated.
 * - `never`: not retried.
 */
export type RetryPolicy = "idempotent" | "unsent" | "never";

/**
 * Callback after a 429 response, with the wait requested by the service in milliseconds, or null. Resolves to true when the request may be
 * sent again, or to false if there were too many such responses; `policy` and `maxRetries` then decide. Rejects with the signal's reason.
 */
export type RateLimitCallback = (retryAfterMs: number | null) => Promise<boolean>;

/** Options of {@link withRetries}. */
export interface RequestRetryOptions {
  readonly policy: RetryPolicy;
  /** Max number of retries. */
  readonly maxRetries: number;
  readonly signal?: AbortSignal | undefined;
  /** Decides about the retry after a 429 response. @default `policy` and `maxRetries` decide */
  readonly onRateLimit?: RateLimitCallback | undefined;
}

/** Upper bound in milliseconds for the wait that a service requests with `Retry-After`. */
const MAX_RETRY_AFTER_MS = 60_000;

/**
 * Runs `attempt` until it succeeds, must not be repeated, or has been retried `maxRetries` times; then throws its last error.
 *
 * Waits between attempts with jittered exponential backoff, and at least as long as `Retry-After` requests. An abort is never retried and
 * ends a wait. After a 429, `onRateLimit` decides first, and a retry that it permits does not count towards `maxRetries`.
 */
export async function withRetries<T>(
  attempt: () => Promise<T>,
  { policy, maxRetries, signal, onRateLimit }: RequestRetryOptions,
): Promise<T> {
  /** Number of counted retries so far. */
  let retries = 0;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (signal?.aborted || !mayRetry(error, policy)) throw error;
      if (await mayRetryRateLimited(error, onRateLimit)) continue;
      if (retries >= maxRetries) throw error;
      const retryAfterMs = error instanceof HttpError ? Math.min(error.retryAfterMs ?? 0, MAX_RETRY_AFTER_MS) : 0;
      await delay(Math.max(retryAfterMs, backoffMs(retries)), { signal });
      retries++;
    }
  }
}

/**
 * After a 429, asks `onRateLimit`, which waits before it permits a retry. Returns false for another error, without the callback, and if the
 * callback denies the retry.
 */
async function mayRetryRateLimited(error: unknown, onRateLimit: RateLimitCallback | undefined): Promise<boolean> {
  if (!(error instanceof HttpError) || error.status !== 429) return false;
  return (await onRateLimit?.(error.retryAfterMs)) ?? false;
}

/** Whether the retry policy permits another attempt after an error. */
function mayRetry(error: unknown, policy: RetryPolicy): boolean {
  if (policy === "never" || isAbort(error) || !WhetstoneError.isInstance(error)) return false;
  if (error instanceof ConnectionError) return policy === "idempotent" || error.isBeforeSend;
  if (!(error instanceof HttpError) || error.status === null) return false;
  return policy === "idempotent" ? isRetryableStatus(error.status) : error.status === 429 || error.status === 503;
}

/** Parses `Retry-After` (seconds or an HTTP date) and returns milliseconds; null if absent or invalid. */
export function readRetryAfter(header: string | undefined, nowMs: number = Date.now()): number | null {
  if (header === undefined || header.trim() === "") return null;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const dateMs = Date.parse(header);
  return Number.isNaN(dateMs) ? null : Math.max(0, dateMs - nowMs);
}
