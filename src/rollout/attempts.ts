import { ArgumentError, isAbort } from "../errors.ts";
import type { RolloutException } from "../schema/index.ts";
import { Trajectory } from "../trajectory/index.ts";
import { backoffMs } from "../util/backoff.ts";
import { delay } from "../util/delay.ts";
import { attachSlowDown } from "../util/slow-down.ts";
import { AttemptSignal } from "./attempt-signal.ts";
import type { RolloutId, RolloutRetryEvent, RolloutStartEvent } from "./events.ts";
import { isRetryable, rateLimitOf, toException } from "./failure.ts";
import type { GatherOptions, Rollout, RolloutContext } from "./options.ts";
import type { Pace } from "./pace.ts";
import { rolloutSeed } from "./seed.ts";

/** So often a rollout waits for a service that answers 429; then the answer is a failure like any other. */
const MAX_SLOW_DOWNS = 50;

/** How a rollout ended, and in which attempt. */
export type Outcome = { readonly attempt: number } & (
  | { readonly trajectory: Trajectory; readonly exception?: undefined }
  | { readonly trajectory?: undefined; readonly exception: RolloutException }
);

type AttemptResult = { readonly trajectory: Trajectory } | { readonly trajectory?: undefined; readonly error: unknown };

/** What all rollouts of a run share. */
export interface AttemptsInit<S> {
  readonly rollout: Rollout<S>;
  readonly options: Pick<GatherOptions, "policy" | "temperature" | "timeoutMs" | "retries">;
  /** The run's seed. */
  readonly seed: number;
  readonly pace: Pace;
  /** The run's signal. */
  readonly signal: AbortSignal;
  readonly onEvent: (event: RolloutStartEvent | RolloutRetryEvent) => void;
}

/** Plays rollouts, each until it succeeds or may not be played again. */
export class Attempts<S> {
  readonly #init: AttemptsInit<S>;
  /** Those under way. One listener on the run's signal serves all: adding one walks over those that are there. */
  readonly #running = new Set<AttemptSignal>();

  constructor(init: AttemptsInit<S>) {
    this.#init = init;
    const { signal } = init;
    signal.addEventListener("abort", () => this.#running.forEach((each) => each.abort(signal.reason)), { once: true });
  }

  /** @throws the run's reason when it is aborted; ArgumentError `E_ARGUMENT` when the rollout gives no finished trajectory. */
  async play(scenario: S, group: number, index: number): Promise<Outcome> {
    const { options, pace, signal, onEvent } = this.#init;
    const { limit, when = isRetryable } = typeof options.retries === "object" ? options.retries : { limit: options.retries ?? 0 };
    const slowDowns = new SlowDowns(pace);
    for (let attempt = 0; ;) {
      const id: RolloutId = { group, index, attempt };
      const result = await this.#attempt(scenario, id, slowDowns);
      if (result.trajectory !== undefined) {
        pace.succeeded();
        return { attempt, trajectory: result.trajectory };
      }
      const refusal = rateLimitOf(result.error);
      // To be refused is not to fail: the service has not begun. The attempt does not count.
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
      // A result that comes after the deadline was not made within it.
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

/** The waits of one rollout, all attempts together. */
class SlowDowns {
  readonly #pace: Pace;
  #left = MAX_SLOW_DOWNS;

  constructor(pace: Pace) {
    this.#pace = pace;
  }

  /** False when it has waited too often. */
  async wait(retryAfterMs: number | null, signal: AbortSignal): Promise<boolean> {
    if (this.#left-- <= 0) return false;
    await this.#pace.slowDown(retryAfterMs, signal);
    return true;
  }

  /** Requests that this package's client sends with the attempt's signal wait here in their place. */
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
  // Not enumerable: a context without a policy can still be spread.
  return Object.defineProperty(context, "policy", { get: noPolicy }) as typeof context & Pick<RolloutContext, "policy">;
}

function noPolicy(): never {
  throw new ArgumentError("The rollout reads `context.policy`, but none was given; pass the option `policy`", { param: "policy" });
}

/** A mistake in the program, not a failure of one rollout: ends the run whatever the budget. */
class UnfinishedError extends Error {}

function checked(value: unknown): Trajectory {
  if (value instanceof Trajectory) return value;
  throw new UnfinishedError("Expected the rollout to return a finished trajectory: `return t.finish({ reward })`");
}
