import type { Policy, Trajectory, TrajectoryGroup } from "../trajectory/index.ts";
import type { RolloutEvent } from "./events.ts";

/** What every turn of a rollout is sampled with: spread it into the options of `t.sample`. */
export interface RolloutSampling {
  /** `temperature` of the gathering. */
  readonly temperature: number;
  /** The rollout's seed. */
  readonly seed: number;
  /** The rollout's signal. */
  readonly signal: AbortSignal;
}

/** What a rollout gets beside its scenario. */
export interface RolloutContext {
  /** Ends with the caller's signal, the rollout's timeout, or when too many siblings failed. Pass it to everything that waits. */
  readonly signal: AbortSignal;
  /** A function of (`seed`, scenario, rollout): pass it to `sample`. The same in every attempt. */
  readonly seed: number;
  /** Which rollout of its group, from 0. */
  readonly index: number;
  /** Which scenario, from 0. */
  readonly group: number;
  /** 0, then 1 for the first retry … */
  readonly attempt: number;
  /**
   * `policy` of the options.
   *
   * @throws ArgumentError `E_ARGUMENT` when it is read and none was given.
   */
  readonly policy: Policy;
  /** Spread into `t.sample(policy, { maxCompletionTokens: 32, ...sampling })`. */
  readonly sampling: RolloutSampling;
}

/** One rollout: plays a scenario and gives the finished trajectory. */
export type Rollout<S> = (scenario: S, context: RolloutContext) => Trajectory | Promise<Trajectory>;

/** How far a gathering has come. */
export interface GatherProgress {
  /** Rollouts that are over, failed ones included. */
  readonly completed: number;
  readonly total: number;
  readonly exceptions: number;
  /** Mean reward so far; NaN before the first. */
  readonly rewardMean: number;
}

/** When a rollout that failed is played again. */
export interface RetryOptions {
  /** Attempts after the first, at least 0. */
  readonly limit: number;
  /**
   * Whether this failure is worth another attempt; `attempt` is the one that failed, from 0.
   *
   * @default what {@link isRetryable} says
   */
  readonly when?: ((error: unknown, attempt: number) => boolean) | undefined;
}

/** Rollouts at the same time among the scenarios that have the same key, e.g. those that use one database. */
export interface ConcurrencyByKey<S> {
  /** The key of a scenario. */
  key(scenario: S): string;
  /** At least 1. */
  readonly limit: number;
}

/** Options of `gatherTrajectoryGroups`. */
export interface GatherOptions<S = unknown> {
  /** Rollouts per scenario, at least 1. @default 8 */
  readonly groupSize?: number | undefined;
  /** Rollouts at the same time, at least 1; fewer for a while when a service answers 429. @default 32 */
  readonly concurrency?: number | undefined;
  /** A second limit, for each key. @default none */
  readonly concurrencyBy?: ConcurrencyByKey<S> | undefined;
  /** What the rollouts sample from: `context.policy`. */
  readonly policy?: Policy | undefined;
  /** `context.sampling.temperature`, at least 0; training expects 1. @default 1 */
  readonly temperature?: number | undefined;
  /**
   * Scenario k has the index `indices[k]`: in `context.group`, in its seeds, and in its group's `scenario_index`. With it,
   * a run that was cut off plays only the groups that are missing, and plays them as it would have. @default 0, 1, 2 …
   */
  readonly indices?: readonly number[] | undefined;
  /**
   * Milliseconds for one attempt; then its signal aborts with a `TimeoutError` and it counts as failed. Time in which a
   * service that answered 429 made it wait is not counted. @default no limit
   */
  readonly timeoutMs?: number | undefined;
  /** Failed rollouts to put up with: a count, or below 1 a fraction of all rollouts (rounded down). @default 0 */
  readonly maxExceptions?: number | undefined;
  /** Attempts after the first, for each rollout, of failures that may pass by themselves; or the policy in full. @default 0 */
  readonly retries?: number | RetryOptions | undefined;
  /** Where rollouts' seeds come from; an integer. @default a random one */
  readonly seed?: number | undefined;
  /** Called after each rollout. */
  readonly onProgress?: ((progress: GatherProgress) => void) | undefined;
  /** Called with everything that happens, as it happens. What it throws ends the run. */
  readonly onEvent?: ((event: RolloutEvent) => void) | undefined;
  /** Called once per group as it ends: may return another group, several, or null to drop it. @default keeps it */
  readonly afterEach?: ((group: TrajectoryGroup, index: number) => AfterEachResult | Promise<AfterEachResult>) | undefined;
  /** Rejects with the signal's own reason, after running rollouts have settled. */
  readonly signal?: AbortSignal | undefined;
  /** Begins no new group, plays the begun ones to their end, and gives what is complete. Never makes the call reject. */
  readonly stopSignal?: AbortSignal | undefined;
}

/** Options of `streamTrajectoryGroups`. */
export interface StreamOptions<S = unknown> extends GatherOptions<S> {
  /** Groups that wait for the reader, at least 1; then rollouts that end theirs wait too, and keep their place. @default 64 */
  readonly maxUnread?: number | undefined;
}

/** What `afterEach` may return; undefined keeps the group. */
export type AfterEachResult = TrajectoryGroup | readonly TrajectoryGroup[] | null | undefined;
