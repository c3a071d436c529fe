/** Use of the service by an API key or an entity. */
import { QuotaError, RateLimitError } from "../../base/errors.ts";
import type { KeyLimits } from "../../base/schema/index.ts";
import { TokenBucket } from "./token-bucket.ts";

/** Bucket of a limit; null without the limit. Keeps its level when the limit changes. */
function bucketFor(limit: number | null, bucket: TokenBucket | null): TokenBucket | null {
  if (limit === null) return null;
  if (bucket === null) return new TokenBucket(limit);
  bucket.perMinute = limit;
  return bucket;
}

/** Milliseconds after which a request over the limit of running choices may be sent again: when one ends is unknown. */
const RUNNING_RETRY_MS = 1000;

/** Account of an API key or an entity: its limits, and how far they are used in this process. */
export class Account {
  /** Owner of the account in messages, such as "the entity 'acme'". */
  readonly owner: string;
  /** Bucket of chat completions; null = no limit. */
  requests: TokenBucket | null = null;
  /** Bucket of the tokens of prompts and answers; null = no limit. */
  tokens: TokenBucket | null = null;
  /** Max choices that run at a time; null = no limit. */
  #maxRunning: number | null = null;
  /** Number of choices that run now. */
  running = 0;

  constructor(owner: string) {
    this.owner = owner;
  }

  /** Replaces the limits. The use so far still counts. */
  limit({ requests_per_minute: requests, tokens_per_minute: tokens, running_choices: running }: KeyLimits): void {
    this.requests = bucketFor(requests ?? null, this.requests);
    this.tokens = bucketFor(tokens ?? null, this.tokens);
    this.#maxRunning = running ?? null;
  }

  /**
   * Checks that a request may start now.
   *
   * @throws RateLimitError `E_RATE_LIMIT` naming the limit, and the time until the request may be sent again.
   * @throws QuotaError `E_QUOTA` for more choices than may ever run at a time.
   */
  require(choices: number): void {
    const { owner, requests, tokens, running } = this;
    const max = this.#maxRunning;
    if (max !== null && choices > max)
      throw new QuotaError(
        `Expected at most ${max} choices in a request of ${owner} (\`running_choices\`), got ${choices}. Send several smaller requests`,
      );
    if (max !== null && running + choices > max)
      throw new RateLimitError(
        `Expected at most ${max} running choices of ${owner} (\`running_choices\`), got ${running} and a request for ${choices}. Send it again when others have ended`,
        { retryAfterMs: RUNNING_RETRY_MS },
      );
    // The tokens of the request are not known yet.
    for (const [name, bucket] of Object.entries({ requests_per_minute: requests, tokens_per_minute: tokens })) {
      if (bucket === null || bucket.level >= 1) continue;
      const retryAfterMs = Math.ceil(name === "requests_per_minute" ? bucket.nextTurnMs() : bucket.msUntil(1));
      const what = name.replaceAll("_", " ");
      throw new RateLimitError(
        `Expected at most ${bucket.perMinute} ${what} of ${owner} (\`${name}\`). Send the request again in ${(retryAfterMs / 1000).toFixed(1)} s`,
        { retryAfterMs },
      );
    }
  }
}
