/**
 * Single rollouts in this process: attempts with timeouts, retries of failed attempts, and replacements of failed rollouts. The runner decides
 * when each rollout starts.
 */
import { ArgumentError, isAbort } from "../../base/errors.ts";
import type { RolloutException } from "../../base/schema/index.ts";
import { Trajectory, type Policy } from "../../base/trajectory/index.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { delay } from "../../base/util/delay.ts";
import { isRetryable } from "../../base/util/retryable.ts";
import { activeTracing } from "../../base/util/tracing.ts";
import { AttemptSignal } from "./attempt-signal.ts";
import type { RolloutId, RolloutReplaceEvent, RolloutRetryEvent, RolloutStartEvent } from "./events.ts";
import { rateLimitOf, toException } from "./failure.ts";
import type { GatherOptions, Rollout, RolloutContext } from "./options.ts";
import type { RateLimiter } from "./rate-limiter.ts";
import { traceAttempt } from "./rollout-span.ts";
import { rolloutSeed } from "./seed.ts";

/** Maximum number of waits per rollout after responses 429; a further 429 counts as a failure. */
const MAX_SLOW_DOWNS = 50;

/** Result of a rollout, or of the last rollout that replaced it. `replaced` has the failures of the replaced ones, oldest first. */
export type Outcome = Result & { readonly replaced: readonly RolloutException[] };

/** Result of a rollout after its retries: a trajectory or the last failure. `attempt` is the number of its last attempt. */
type Result = { readonly attempt: number } & (
  | { readonly trajectory: Trajectory; readonly exception?: undefined }
  | { readonly trajectory?: undefined; readonly exception: RolloutException }
);

/** Failed attempt, with the thrown value. */
type AttemptFailure = { readonly trajectory?: undefined; readonly error: unknown };

/** Result of one attempt. */
type AttemptResult = { readonly trajectory: Trajectory } | AttemptFailure;

/** Attempt of a rollout with the seed of the rollout. */
type Attempt = RolloutId & { readonly seed: number };

/** Player of single rollouts: in this process, or on workers. */
export interface Player<S> {
  /** Plays one rollout, with its retries and replacements. `group` and `index` determine its seed. */
  play(scenario: S, group: number, index: number): Promise<Outcome>;
}

/** Settings of a run that every {@link Player} has. */
export interface PlayerInit {
  readonly groupSize: number;
  /** Seed of the run. */
  readonly seed: number;
  /** Signal of the run. */
  readonly signal: AbortSignal;
  readonly onEvent: (event: RolloutStartEvent | RolloutRetryEvent | RolloutReplaceEvent) => void;
}

/** Settings shared by all rollouts of a run. */
export interface AttemptsInit<S> extends PlayerInit {
  readonly rollout: Rollout<S>;
  readonly options: Pick<
    GatherOptions,
    "policy" | "temperature" | "chatTemplateKwargs" | "timeoutMs" | "retries" | "replacements" | "traceAttributes"
  >;
  readonly rateLimiter: RateLimiter;
}

/** Runner of single rollouts: retries a failed rollout, then replaces it by a rollout with another seed, as far as the options allow. */
export class Attempts<S> implements Player<S> {
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
   * Runs one rollout with its retries and replacements.
   *
   * @throws The run's reason when it is aborted.
   * @throws ArgumentError `E_ARGUMENT` when the rollout does not return a finished trajectory.
   */
  async play(scenario: S, group: number, index: number): Promise<Outcome> {
    const { options, rateLimiter, groupSize, onEvent } = this.#init;
    const slowDowns = new SlowDowns(rateLimiter);
    const replaced: RolloutException[] = [];
    for (;;) {
      // Replacement k has the seed of the rollout at `index + groupSize · k`, an index that no rollout of the group has.
      const seed = rolloutSeed(this.#init.seed, group, index + groupSize * replaced.length);
      const result = await this.#withRetries(scenario, { group, index, seed }, slowDowns);
      if (result.exception === undefined || replaced.length >= (options.replacements ?? 0)) return { ...result, replaced };
      const { attempt, exception } = result;
      replaced.push(exception);
      onEvent({ type: "rollout-replace", group, index, attempt, exception, replacement: replaced.length });
    }
  }

  /** Runs a rollout until it succeeds or may not be retried. */
  async #withRetries(scenario: S, rollout: Omit<Attempt, "attempt">, slowDowns: SlowDowns): Promise<Result> {
    const { options, rateLimiter, signal, onEvent } = this.#init;
    const { group, index } = rollout;
    const { retries = 0 } = options;
    const { limit, when = isRetryable } = typeof retries === "object" ? retries : { limit: retries };
    let attempt = 0;
    for (;;) {
      const result = await this.#attempt(scenario, { ...rollout, attempt }, slowDowns);
      if (result.trajectory !== undefined) {
        rateLimiter.succeeded();
        return { attempt, trajectory: result.trajectory };
      }
      const rateLimit = rateLimitOf(result.error);
      // A 429 is not a failure, because the service has not started the work. The attempt does not count.
      if (rateLimit !== null && (await slowDowns.wait(rateLimit.retryAfterMs, signal))) continue;
      const exception = toException(result.error);
      if (attempt >= limit || !when(result.error, attempt)) return { attempt, exception };
      const waitMs = backoffMs(attempt);
      onEvent({ type: "rollout-retry", group, index, attempt, exception, waitMs });
      await delay(waitMs, { signal });
      attempt++;
    }
  }

  /** Runs one attempt, in a span if tracing is on. */
  #attempt(scenario: S, id: Attempt, slowDowns: SlowDowns): Promise<AttemptResult> {
    const tracing = activeTracing();
    if (tracing === null) return this.#runAttempt(scenario, id, slowDowns);
    const { policy, traceAttributes: attributes = {} } = this.#init.options;
    return traceAttempt(tracing, { id, policy, attributes }, () => this.#runAttempt(scenario, id, slowDowns));
  }

  /** Runs one attempt. If it times out, the rollout's `afterTimeout` may still return a trajectory, within a timeout of its own. */
  async #runAttempt(scenario: S, id: Attempt, slowDowns: SlowDowns): Promise<AttemptResult> {
    const { rollout, options, signal, onEvent } = this.#init;
    onEvent({ type: "rollout-start", ...id });
    signal.throwIfAborted();
    const attemptSignal = new AttemptSignal(options.timeoutMs, `rollout ${id.index} of group ${id.group}`);
    const context = contextOf(id, attemptSignal.signal, options, slowDowns.callbackFor(attemptSignal));
    const result = await this.#withinTimeout(attemptSignal, async () => checkedTrajectory(await rollout(scenario, context)));
    const { afterTimeout } = rollout;
    // The signal of an attempt aborts only at its timeout, and with the run, which `#withinTimeout` reports by throwing.
    const isTimedOut = result.trajectory === undefined && attemptSignal.signal.aborted;
    if (!isTimedOut || afterTimeout === undefined) return result;
    const scoringSignal = new AttemptSignal(options.timeoutMs, `scoring of rollout ${id.index} of group ${id.group}`);
    const scored = await this.#withinTimeout(scoringSignal, async () => {
      const trajectory = await afterTimeout(scenario, context, scoringSignal.signal);
      return trajectory === null ? null : checkedTrajectory(trajectory);
    });
    if (scored.trajectory === undefined) return scored;
    return scored.trajectory === null ? result : { trajectory: scored.trajectory };
  }

  /**
   * Runs a part of an attempt within the time of its signal. Returns errors, and throws only errors that end the whole run.
   */
  async #withinTimeout<T>(attemptSignal: AttemptSignal, run: () => Promise<T>): Promise<{ readonly trajectory: T } | AttemptFailure> {
    const { signal } = this.#init;
    this.#running.add(attemptSignal);
    try {
      const trajectory = await run();
      // A result after the deadline counts as a timeout.
      attemptSignal.signal.throwIfAborted();
      return { trajectory };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof UnfinishedError) throw new ArgumentError(error.message);
      return { error: attemptSignal.signal.aborted && isAbort(error) ? attemptSignal.signal.reason : error };
    } finally {
      this.#running.delete(attemptSignal);
      attemptSignal.dispose();
    }
  }
}

/** Budget of 429 waits of one rollout, shared by all its attempts. */
class SlowDowns {
  readonly #rateLimiter: RateLimiter;
  #remainingWaits = MAX_SLOW_DOWNS;

  constructor(rateLimiter: RateLimiter) {
    this.#rateLimiter = rateLimiter;
  }

  /** Waits after a 429 until the request may be repeated. @returns false, without waiting, if the budget is used up. */
  async wait(retryAfterMs: number | null, signal: AbortSignal): Promise<boolean> {
    if (this.#remainingWaits === 0) return false;
    this.#remainingWaits--;
    await this.#rateLimiter.slowDown(retryAfterMs, signal);
    return true;
  }

  /** Returns the `onRateLimit` of the requests of an attempt: they wait after a 429 and repeat, instead of failing the attempt. */
  callbackFor(attempt: AttemptSignal): (retryAfterMs: number | null) => Promise<boolean> {
    return async (retryAfterMs) => {
      attempt.halt();
      try {
        return await this.wait(retryAfterMs, attempt.signal);
      } finally {
        attempt.go();
      }
    };
  }
}

/** Returns the context that the rollout function gets. */
function contextOf(
  { group, index, attempt, seed }: Attempt,
  signal: AbortSignal,
  { policy, temperature = 1, chatTemplateKwargs }: AttemptsInit<never>["options"],
  onRateLimit: (retryAfterMs: number | null) => Promise<boolean>,
): RolloutContext {
  const sampling = { temperature, seed, signal, ...(chatTemplateKwargs === undefined ? {} : { chatTemplateKwargs }) };
  if (policy !== undefined) return { signal, seed, index, group, attempt, policy: rateLimitedPolicy(policy, onRateLimit), sampling };
  const context = { signal, seed, index, group, attempt, sampling };
  // Not enumerable, so that spreading a context without a policy does not throw.
  return Object.defineProperty(context, "policy", { get: noPolicy }) as typeof context & Pick<RolloutContext, "policy">;
}

/** Returns a policy whose requests wait with the rate limiter after a 429. */
function rateLimitedPolicy(policy: Policy, onRateLimit: (retryAfterMs: number | null) => Promise<boolean>): Policy {
  const { id, step, handsOver } = policy;
  return { ...policy, id, step, handsOver, complete: (request, options) => policy.complete(request, { ...options, onRateLimit }) };
}

/** Getter of `context.policy` in a run without a policy. */
function noPolicy(): never {
  throw new ArgumentError("The rollout reads `context.policy`, but none was given; pass the option `policy`", { param: "policy" });
}

/** Error of a rollout function that returns no trajectory. A programming error: it ends the run regardless of `maxExceptions`. */
class UnfinishedError extends Error {}

/** Returns the result of a rollout function. @throws UnfinishedError for any other value than a trajectory. */
function checkedTrajectory(value: unknown): Trajectory {
  if (Trajectory.isInstance(value)) return value;
  throw new UnfinishedError("Expected the rollout to return a finished trajectory: `return t.finish({ reward })`");
}
