import { ArgumentError, isAbort } from "../errors.ts";
import type { RolloutException } from "../schema/index.ts";
import { Trajectory } from "../trajectory/index.ts";
import { backoffMs } from "../util/backoff.ts";
import { delay } from "../util/delay.ts";
import { isRetryable } from "../util/retryable.ts";
import { attachSlowDown } from "../util/slow-down.ts";
import { AttemptSignal } from "./attempt-signal.ts";
import type { RolloutId, RolloutRetryEvent, RolloutStartEvent } from "./events.ts";
import { rateLimitOf, toException } from "./failure.ts";
import type { GatherOptions, Rollout, RolloutContext } from "./options.ts";
import type { RateLimiter } from "./rate-limiter.ts";
import { rolloutSeed } from "./seed.ts";

/** Maximum number of waits per rollout for a service that responds 429; a further 429 counts as a failure. */
const MAX_SLOW_DOWNS = 50;

/** Result of a rollout, with the number of its last attempt. */
export type Outcome = { readonly attempt: number } & (
  | { readonly trajectory: Trajectory; readonly exception?: undefined }
  | { readonly trajectory?: undefined; readonly exception: RolloutException }
);

type AttemptResult = { readonly trajectory: Trajectory } | { readonly trajectory?: undefined; readonly error: unknown };

/** Settings shared by all rollouts of a run. */
export interface AttemptsInit<S> {
  readonly rollout: Rollout<S>;
  readonly options: Pick<GatherOptions, "policy" | "temperature" | "timeoutMs" | "retries">;
  /** Seed of the run. */
  readonly seed: number;
  readonly rateLimiter: RateLimiter;
  /** Signal of the run. */
  readonly signal: AbortSignal;
  readonly onEvent: (event: RolloutStartEvent | RolloutRetryEvent) => void;
}

/** Runner of rollouts: repeats each until it succeeds or may not be retried. */
export class Attempts<S> {
  readonly #init: AttemptsInit<S>;
  /**
   * Signals of the running attempts. One listener on the run's signal serves all of them, because adding a listener walks over the existing
   * ones.
   */
  readonly #running = new Set<AttemptSignal>();

  constructor(init: AttemptsInit<S>) {
    this.#init = init;
    const { signal } = init;
    signal.addEventListener("abort", () => this.#running.forEach((each) => each.abort(signal.reason)), { once: true });
  }

  /**
   * Runs one rollout with its retries.
   *
   * @throws The run's reason when it is aborted.
   * @throws ArgumentError `E_ARGUMENT` when the rollout does not return a finished trajectory.
   */
  async play(scenario: S, group: number, index: number): Promise<Outcome> {
    const { options, rateLimiter, signal, onEvent } = this.#init;
    const { limit, when = isRetryable } = typeof options.retries === "object" ? options.retries : { limit: options.retries ?? 0 };
    const slowDowns = new SlowDowns(rateLimiter);
    for (let attempt = 0; ;) {
      const id: RolloutId = { group, index, attempt };
      const result = await this.#attempt(scenario, id, slowDowns);
      if (result.trajectory !== undefined) {
        rateLimiter.succeeded();
        return { attempt, trajectory: result.trajectory };
      }
      const refusal = rateLimitOf(result.error);
      // A 429 is not a failure, because the service has not started the work. The attempt does not count.
      if (refusal !== null && (await slowDowns.wait(refusal.retryAfterMs, signal))) continue;
      const exception = toException(result.error);
      if (attempt >= limit || !when(result.error, attempt)) return { attempt, exception };
      const waitMs = backoffMs(attempt);
      onEvent({ type: "rollout-retry", ...id, exception, waitMs });
      await delay(waitMs, { signal });
      attempt++;
    }
  }

  async #attempt(scenario: S, id: RolloutId, slowDowns: SlowDowns): Promise<AttemptResult> {
    const { rollout, options, signal, onEvent } = this.#init;
    const seed = rolloutSeed(this.#init.seed, id.group, id.index);
    onEvent({ type: "rollout-start", ...id, seed });
    signal.throwIfAborted();
    const own = new AttemptSignal(options.timeoutMs, `rollout ${id.index} of group ${id.group}`);
    slowDowns.attach(own);
    this.#running.add(own);
    try {
      const trajectory = await rollout(scenario, contextOf(id, seed, own.signal, options));
      // A result after the deadline counts as a timeout.
      own.signal.throwIfAborted();
      return { trajectory: checked(trajectory) };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof UnfinishedError) throw new ArgumentError(error.message);
      return { error: own.signal.aborted && isAbort(error) ? own.signal.reason : error };
    } finally {
      this.#running.delete(own);
      own.dispose();
    }
  }
}

/** Budget of 429 waits of one rollout, shared by all its attempts. */
class SlowDowns {
  readonly #rateLimiter: RateLimiter;
  #left = MAX_SLOW_DOWNS;

  constructor(rateLimiter: RateLimiter) {
    this.#rateLimiter = rateLimiter;
  }

  /** Waits after a 429. @returns False, without waiting, if the budget is used up. */
  async wait(retryAfterMs: number | null, signal: AbortSignal): Promise<boolean> {
    if (this.#left-- <= 0) return false;
    await this.#rateLimiter.slowDown(retryAfterMs, signal);
    return true;
  }

  /**
   * Makes requests that this package's client sends with the attempt's signal wait after a 429 and repeat, instead of failing the attempt.
   */
  attach(attempt: AttemptSignal): void {
    attachSlowDown(attempt.signal, async (retryAfterMs) => {
      attempt.halt();
      try {
        return await this.wait(retryAfterMs, attempt.signal);
      } finally {
        attempt.go();
      }
    });
  }
}

function contextOf(
  { group, index, attempt }: RolloutId,
  seed: number,
  signal: AbortSignal,
  { policy, temperature = 1 }: AttemptsInit<never>["options"],
): RolloutContext {
  const sampling = { temperature, seed, signal };
  if (policy !== undefined) return { signal, seed, index, group, attempt, policy, sampling };
  const context = { signal, seed, index, group, attempt, sampling };
  // Not enumerable, so that spreading a context without a policy does not throw.
  return Object.defineProperty(context, "policy", { get: noPolicy }) as typeof context & Pick<RolloutContext, "policy">;
}

function noPolicy(): never {
  throw new ArgumentError("The rollout reads `context.policy`, but none was given; pass the option `policy`", { param: "policy" });
}

/** Programming error rather than a failure of one rollout: ends the run regardless of `maxExceptions`. */
class UnfinishedError extends Error {}

function checked(value: unknown): Trajectory {
  if (value instanceof Trajectory) return value;
  throw new UnfinishedError("Expected the rollout to return a finished trajectory: `return t.finish({ reward })`");
}
