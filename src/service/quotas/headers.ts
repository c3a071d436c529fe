/** Headers of answers with the rate limits of the caller. */
import type { Account } from "./account.ts";
import type { TokenBucket } from "./token-bucket.ts";

/** Returns a duration as clients of the OpenAI API read it, such as `6m0s` or `20ms`. */
export function durationText(ms: number): string {
  if (ms < 1000) return `${Math.ceil(ms)}ms`;
  const seconds = Math.ceil(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  return minutes === 0 ? `${seconds}s` : `${minutes}m${seconds % 60}s`;
}

/**
 * Returns the headers of the limits of requests and tokens per minute, each for the account with the lowest level: limit, level, and the
 * time until the bucket is full. A limit that no account has gets no headers.
 *
 * @source OpenAI API, "Rate limits".
 */
export function rateLimitHeaders(accounts: readonly Account[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const kind of ["requests", "tokens"] as const) {
    const buckets = accounts.flatMap((account): readonly TokenBucket[] => (account[kind] === null ? [] : [account[kind]]));
    const [lowest] = buckets.toSorted((a, b) => a.level - b.level);
    if (lowest === undefined) continue;
    headers[`x-ratelimit-limit-${kind}`] = String(lowest.perMinute);
    headers[`x-ratelimit-remaining-${kind}`] = String(Math.max(0, Math.floor(lowest.level)));
    headers[`x-ratelimit-reset-${kind}`] = durationText(lowest.msUntil(lowest.perMinute));
  }
  return headers;
}
