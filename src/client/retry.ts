import { isAbort, WhetstoneError } from "../errors.ts";
import { backoffMs } from "../util/backoff.ts";
import { delay } from "../util/delay.ts";
import { slowDownOf } from "../util/slow-down.ts";
import { ConnectionError, HttpError } from "./errors.ts";

/**
 * When a request may be sent again.
 *
 * - `idempotent`: GET, PUT, DELETE, and POSTs with an `Idempotency-Key`: on 408, 429, 5xx that may pass and every connection error.
 * - `unsent`: sampling, and job POSTs where keys are not honoured: on 429 and 503 (the service said it did not start) and on
 *   errors before the request was sent. A stream that began is never repeated.
 * - `never`.
 */
export type RetryPolicy = "idempotent" | "unsent" | "never";

/** Options of {@link withRetries}. */
export interface RetryOptions {
  readonly policy: RetryPolicy;
  /** Attempts after the first. */
  readonly maxRetries: number;
  readonly signal?: AbortSignal | undefined;
  /** The caller's own signal, where `signal` is a child of it: a runner of rollouts may be attached to it. @default `signal` */
  readonly callerSignal?: AbortSignal | undefined;
}

/** No service may hold a client longer than this with `Retry-After`. */
const MAX_RETRY_AFTER_MS = 60_000;

/**
 * Runs `attempt` until it succeeds, may not be repeated, or has been repeated `maxRetries` times; then throws its last error.
 *
 * Waits with jittered exponential backoff, at least as long as `Retry-After` says. An abort is never retried and ends a wait.
 * After a 429 in a rollout, the runner of rollouts says when to go on, and no retry is used up.
 */
export async function withRetries<T>(
  attempt: () => Promise<T>,
  { policy, maxRetries, signal, callerSignal = signal }: RetryOptions,
): Promise<T> {
  for (let retry = 0; ; retry++) {
    try {
      return await attempt();
    } catch (error) {
      if (signal?.aborted || !mayRetry(error, policy)) throw error;
      if (await isHeldBack(error, callerSignal)) {
        retry--;
        continue;
      }
      if (retry >= maxRetries) throw error;
      const asked = error instanceof HttpError ? Math.min(error.retryAfterMs ?? 0, MAX_RETRY_AFTER_MS) : 0;
      await delay(Math.max(asked, backoffMs(retry)), { signal });
    }
  }
}

/** Waits for the runner whose rollout this request belongs to; false when there is none, or when it has waited often enough. */
async function isHeldBack(error: unknown, signal: AbortSignal | undefined): Promise<boolean> {
  if (!(error instanceof HttpError) || error.status !== 429) return false;
  return (await slowDownOf(signal)?.(error.retryAfterMs)) ?? false;
}

function mayRetry(error: unknown, policy: RetryPolicy): boolean {
  if (policy === "never" || isAbort(error) || !WhetstoneError.isInstance(error)) return false;
  if (error instanceof ConnectionError) return policy === "idempotent" || error.isBeforeSend;
  if (!(error instanceof HttpError) || error.status === null) return false;
  return policy === "idempotent" ? isRetryableStatus(error.status) : error.status === 429 || error.status === 503;
}

/** 5xx statuses that a repetition does not change: not implemented, HTTP version not supported, and a full disk (507). */
const LASTING_STATUSES: readonly number[] = [501, 505, 507];

/** 408, 429 and 5xx, but for those that say the request itself cannot be served, or not before somebody makes room. */
export function isRetryableStatus(status: number): boolean {
  return status === 408 || status === 429 || (status >= 500 && !LASTING_STATUSES.includes(status));
}

/** `Retry-After` in milliseconds: seconds or an HTTP date; null if absent or unreadable. */
export function readRetryAfter(header: string | undefined, nowMs: number = Date.now()): number | null {
  if (header === undefined || header.trim() === "") return null;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const dateMs = Date.parse(header);
  return Number.isNaN(dateMs) ? null : Math.max(0, dateMs - nowMs);
}
