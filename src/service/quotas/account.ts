/** Limits of an API key or an entity, and their use in this process. `quotas.ts` charges each chat completion to its accounts. */
import { QuotaError, RateLimitError } from "../../base/errors.ts";
import type { KeyLimits } from "../../base/schema/index.ts";
import { TokenBucket } from "./token-bucket.ts";

/** Milliseconds after which a request over the limit of running choices may be sent again. The time at which a choice ends is unknown. */
const RUNNING_RETRY_MS = 1000;

/** Account of an API key or an entity: its limits, and how far they are used in this process. */
export class Account {
  /** Owner of the account in messages, such as "the entity 'acme'". */
  readonly #owner: string;
  #requests: TokenBucket | null = null;
  #tokens: TokenBucket | null = null;
  /** Max choices that run at a time; null = no limit. */
  #maxRunning: number | null = null;
  /** Choices that run now. */
  #running = 0;

  constructor(owner: string) {
    this.#owner = owner;
  }

  /** Bucket of chat completions; null = no limit. */
  get requests(): TokenBucket | null {
    return this.#requests;
  }

  /** Bucket of the tokens of prompts and answers; null = no limit. */
  get tokens(): TokenBucket | null {
    return this.#tokens;
  }

  /** Number of choices that run now. */
  get running(): number {
    return this.#running;
  }

  /** Replaces the limits. The use so far still counts. */
  limit({ requests_per_minute: requests, tokens_per_minute: tokens, running_choices: running }: KeyLimits): void {
    this.#requests = bucketFor(requests ?? null, this.#requests);
    this.#tokens = bucketFor(tokens ?? null, this.#tokens);
    this.#maxRunning = running ?? null;
  }

  /**
   * Checks that a request may start now. Charges nothing, because a request has several accounts and starts only if all of them admit it.
   *
   * @throws RateLimitError `E_RATE_LIMIT` naming the limit, and the time until the request may be sent again.
   * @throws QuotaError `E_QUOTA` for more choices than may ever run at a time.
   */
  require(choices: number): void {
    const owner = this.#owner;
    const running = this.#running;
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
    this.#requireUnit("requests_per_minute", this.#requests, (bucket) => bucket.nextTurnMs());
    // The tokens of the request are not known yet, so one is enough.
    this.#requireUnit("tokens_per_minute", this.#tokens, (bucket) => bucket.msUntil(1));
  }

  /** Checks that a bucket holds a unit. `name` is the limit, and `waitMs` returns the time until a rejected request may be sent again. */
  #requireUnit(name: keyof KeyLimits, bucket: TokenBucket | null, waitMs: (bucket: TokenBucket) => number): void {
    if (bucket === null || bucket.level >= 1) return;
    const retryAfterMs = Math.ceil(waitMs(bucket));
    const seconds = (retryAfterMs / 1000).toFixed(1);
    throw new RateLimitError(
      `Expected at most ${bucket.perMinute} ${name.replaceAll("_", " ")} of ${this.#owner} (\`${name}\`). Send the request again in ${seconds} s`,
      { retryAfterMs },
    );
  }

  /** Charges a request that starts. */
  start(choices: number): void {
    this.#requests?.take(1);
    this.#running += choices;
  }

  /** Charges tokens of a prompt or an answer, also beyond the limit. */
  charge(tokens: number): void {
    this.#tokens?.take(tokens);
  }

  /** Ends the choices of a request that {@link start} has charged. */
  end(choices: number): void {
    this.#running -= choices;
  }
}

/** Returns the bucket of a limit per minute; null without the limit. A changed limit keeps the bucket with its use so far. */
function bucketFor(limit: number | null, bucket: TokenBucket | null): TokenBucket | null {
  if (limit === null) return null;
  if (bucket === null) return new TokenBucket(limit);
  bucket.perMinute = limit;
  return bucket;
}
