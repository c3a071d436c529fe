/** Options of runs of rollouts, and the context that each rollout receives. */
import type { Writable } from "node:stream";
import type { JsonObject } from "../../base/schema/index.ts";
import type { Policy, Trajectory, TrajectoryGroup } from "../../base/trajectory/index.ts";
import type { RolloutEvent } from "./events.ts";

/** Sampling settings for every turn of a rollout; spread them into the options of `t.sample`. */
export interface RolloutSampling {
  /** Option `temperature` of the run. */
  readonly temperature: number;
  /** Seed of the rollout. */
  readonly seed: number;
  /** Signal of the rollout. */
  readonly signal: AbortSignal;
  /** Option `chatTemplateKwargs` of the run; absent without it. */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
}

/** Context of a rollout, in addition to its scenario. */
export interface RolloutContext {
  /**
   * Aborts with the caller's signal, at the rollout's timeout, or after too many failures in the run. Pass it to every operation that
   * waits.
   */
  readonly signal: AbortSignal;
  /** Seed derived from `seed`, scenario and rollout; pass it to `sample`. The same in every attempt; a replacement has another one. */
  readonly seed: number;
  /** Index of the rollout in its group, from 0. */
  readonly index: number;
  /** Index of the scenario, from 0. */
  readonly group: number;
  /** Number of the attempt: 0, then 1 for the first retry … */
  readonly attempt: number;
  /**
   * Policy of the run. Its requests wait with the rate limiter of the run after a 429 response.
   *
   * @throws ArgumentError `E_ARGUMENT` on access if the option is absent.
   */
  readonly policy: Policy;
  /** Sampling settings to spread: `t.sample(policy, { maxCompletionTokens: 32, ...sampling })`. */
  readonly sampling: RolloutSampling;
}

/** Function that runs one scenario and returns the finished trajectory. */
export interface Rollout<S> {
  /** Runs one attempt at a scenario; a rejection is a failure of this rollout only. */
  (scenario: S, context: RolloutContext): Trajectory | Promise<Trajectory>;
  /**
   * Scores the rollouts of one scenario relative to each other; called once per group, after its last rollout. Trajectories that the
   * returned group has as `exceptions` instead count as failed. `environmentRollout` sets it for environments with group rewards.
   *
   * @default keeps the group
   */
  readonly scoreGroup?: ((scenario: S, group: TrajectoryGroup, signal: AbortSignal) => Promise<TrajectoryGroup>) | undefined;
  /**
   * Scores a rollout that reached its timeout; called with the scenario and the context of the attempt, and with a signal that has a
   * timeout of its own. The returned trajectory is the result of the rollout; with null the attempt fails. `environmentRollout` sets it with
   * `scoreTimeouts`.
   *
   * @default every timeout is a failure
   */
  readonly afterTimeout?: ((scenario: S, context: RolloutContext, signal: AbortSignal) => Promise<Trajectory | null>) | undefined;
}

/** Progress of a run. */
export interface GatherProgress {
  /** Number of finished rollouts, including failed ones. */
  readonly completed: number;
  /** Number of rollouts of the whole run. */
  readonly total: number;
  /** Number of rollouts in progress. */
  readonly running: number;
  /** Number of failed rollouts. */
  readonly exceptions: number;
  /** Mean reward so far; NaN before the first reward. */
  readonly rewardMean: number;
  /** Number of sampled tokens in the finished rollouts that did not fail. */
  readonly completionTokens: number;
}

/** Conditions for repeating a failed rollout. */
export interface RetryOptions {
  /** Maximum number of retries, at least 0. */
  readonly limit: number;
  /**
   * Whether to retry after this failure; `attempt` is the failed attempt, from 0.
   *
   * @default true after a timeout, a `retryable` error of this package, and a transient status (408, 429, 5xx) or connection error of another client
   */
  readonly when?: ((error: unknown, attempt: number) => boolean) | undefined;
}

/** Concurrency limit for scenarios with the same key, e.g. for scenarios that use one database. */
export interface ConcurrencyByKey<S> {
  /**
   * Returns the key of a scenario. Called once for each scenario, before the first rollout starts.
   *
   * @param scenario - Scenario that will be played.
   * @returns the key; scenarios with equal keys share one limit.
   * @example
   * ```ts
   * const concurrencyBy: ConcurrencyByKey<{ database: string }> = { key: ({ database }) => database, limit: 1 };
   * ```
   */
  key(scenario: S): string;
  /** Maximum concurrent rollouts per key, at least 1. */
  readonly limit: number;
}

/** Group size, concurrency, limits and callbacks of `gatherTrajectoryGroups`. */
export interface GatherOptions<S = unknown> {
  /** Rollouts per scenario, at least 1. @default 8 */
  readonly groupSize?: number | undefined;
  /** Maximum concurrent rollouts, at least 1; reduced temporarily when a service responds 429. @default 32 */
  readonly concurrency?: number | undefined;
  /** Additional limit per key. @default none */
  readonly concurrencyBy?: ConcurrencyByKey<S> | undefined;
  /** Policy to sample from, passed on as `context.policy`. */
  readonly policy?: Policy | undefined;
  /** Sampling temperature (`context.sampling.temperature`), at least 0; training expects 1. @default 1 */
  readonly temperature?: number | undefined;
  /** Variables of the chat template for every turn (`context.sampling.chatTemplateKwargs`). @default none */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
  /**
   * Indices of the scenarios: scenario k has the index `indices[k]` in `context.group`, in its seeds, and in its group's `scenario_index`.
   * Allows an interrupted run to resume with the missing groups only, with unchanged seeds.
   *
   * @default 0, 1, 2 …
   */
  readonly indices?: readonly number[] | undefined;
  /**
   * Timeout of one attempt in milliseconds: its signal aborts with a `TimeoutError`, and the attempt counts as failed. Time spent waiting
   * after a 429 is not counted.
   *
   * @default no limit
   */
  readonly timeoutMs?: number | undefined;
  /** Maximum number of failed rollouts: a count, or below 1 a fraction of all rollouts (rounded down). @default 0 */
  readonly maxExceptions?: number | undefined;
  /** Maximum number of retries per rollout for transient failures, or a full retry policy. @default 0 */
  readonly retries?: number | RetryOptions | undefined;
  /**
   * Maximum number of replacements per rollout. A rollout that failed after its retries is replaced by a new rollout with another seed; the
   * other rollouts of the group are not repeated. Replacement `k` has the seed `rolloutSeed(seed, group, index + groupSize · k)`. A replaced
   * failure does not count for `maxExceptions`: the group has a line about it in `logs`, and their number as the metric `rollout/replaced`.
   * Failures of group rewards are not replaced. @default 0
   */
  readonly replacements?: number | undefined;
  /** Seed from which the rollouts' seeds are derived; an integer. @default a random one */
  readonly seed?: number | undefined;
  /**
   * Display of the progress on standard error: a block on a terminal, else plain lines. False shows nothing, a stream is written to
   * instead of standard error.
   *
   * @default true, or as the environment variable `WHETSTONE_PROGRESS` says
   */
  readonly progress?: boolean | Writable | undefined;
  /**
   * Attributes of the spans of the rollouts, with `enableTracing` of `whetstone/tracing`. `gen_ai.agent.name` is also part of their names.
   *
   * @default none
   */
  readonly traceAttributes?: Readonly<Record<string, string | number | boolean>> | undefined;
  /** Called after each rollout. */
  readonly onProgress?: ((progress: GatherProgress) => void) | undefined;
  /** Called with every event as it occurs. An error thrown here ends the run. */
  readonly onEvent?: ((event: RolloutEvent) => void) | undefined;
  /** Called once per finished group: may return another group, several groups, or null to drop the group. @default keeps it */
  readonly afterEach?: ((group: TrajectoryGroup, index: number) => AfterEachResult | Promise<AfterEachResult>) | undefined;
  /** Aborts the run: it rejects with the signal's own reason after running rollouts have settled. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Stops the run gracefully: no new group starts, started groups finish, and the complete groups are returned. Never makes the call
   * reject.
   */
  readonly stopSignal?: AbortSignal | undefined;
}

/** Options of `streamTrajectoryGroups`: as for `gatherTrajectoryGroups`, and a limit for unread groups. */
export interface StreamOptions<S = unknown> extends GatherOptions<S> {
  /** Maximum number of unread groups, at least 1. Beyond it, a rollout that completes a group waits and occupies its slot. @default 64 */
  readonly maxUnread?: number | undefined;
}

/** Return value of `afterEach`; undefined keeps the group. */
export type AfterEachResult = TrajectoryGroup | readonly TrajectoryGroup[] | null | undefined;
