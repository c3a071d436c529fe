import { ArgumentError } from "../errors.ts";
import type { Trajectory, TrajectoryGroup } from "../trajectory/index.ts";

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

/** Options of `gatherTrajectoryGroups` and `streamTrajectoryGroups`. */
export interface GatherOptions {
  /** Rollouts per scenario, at least 1. @default 8 */
  readonly groupSize?: number | undefined;
  /** Rollouts at the same time, at least 1. @default 32 */
  readonly concurrency?: number | undefined;
  /** Milliseconds for one attempt; then its signal aborts with a `TimeoutError` and it counts as failed. @default no limit */
  readonly timeoutMs?: number | undefined;
  /** Failed rollouts to put up with: a count, or below 1 a fraction of all rollouts (rounded down). @default 0 */
  readonly maxExceptions?: number | undefined;
  /** Attempts after the first, for each rollout. @default 0 */
  readonly retries?: number | undefined;
  /** Where rollouts' seeds come from; an integer. @default a random one */
  readonly seed?: number | undefined;
  /** Called after each rollout. */
  readonly onProgress?: ((progress: GatherProgress) => void) | undefined;
  /** Called once per group as it ends: may return another group, several, or null to drop it. @default keeps it */
  readonly afterEach?: ((group: TrajectoryGroup, index: number) => AfterEachResult | Promise<AfterEachResult>) | undefined;
  /** Rejects with the signal's own reason, after running rollouts have settled. */
  readonly signal?: AbortSignal | undefined;
}

/** What `afterEach` may return; undefined keeps the group. */
export type AfterEachResult = TrajectoryGroup | readonly TrajectoryGroup[] | null | undefined;

/** @throws ArgumentError `E_ARGUMENT` for a number outside its bounds, before anything runs. */
export function checkGatherOptions(options: GatherOptions): void {
  integer("groupSize", options.groupSize, 1);
  integer("concurrency", options.concurrency, 1);
  integer("retries", options.retries, 0);
  integer("seed", options.seed, Number.MIN_SAFE_INTEGER);
  const { timeoutMs, maxExceptions } = options;
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= 2 ** 31 - 1)) {
    throw new ArgumentError(`Expected \`timeoutMs\` to be above 0 and at most 2147483647, got \`${timeoutMs}\``, { param: "timeoutMs" });
  }
  if (maxExceptions !== undefined && !(maxExceptions >= 0 && (maxExceptions < 1 || Number.isInteger(maxExceptions)))) {
    throw new ArgumentError(`Expected \`maxExceptions\` to be a count, or a fraction below 1, got \`${maxExceptions}\``, {
      param: "maxExceptions",
    });
  }
}

function integer(param: string, value: number | undefined, min: number): void {
  if (value === undefined || (Number.isSafeInteger(value) && value >= min)) return;
  throw new ArgumentError(`Expected \`${param}\` to be an integer of at least ${min}, got \`${value}\``, { param });
}
