import type { RolloutException } from "../schema/index.ts";

/** Which attempt of which rollout. */
export interface RolloutId {
  /** The scenario's index. */
  readonly group: number;
  /** Which rollout of its group, from 0. */
  readonly index: number;
  /** 0, then 1 for the first retry … */
  readonly attempt: number;
}

/** An attempt begins. */
export interface RolloutStartEvent extends RolloutId {
  readonly type: "rollout-start";
  readonly seed: number;
}

/** A rollout is over: with its reward, or with what it failed with. */
export interface RolloutEndEvent extends RolloutId {
  readonly type: "rollout-end";
  /** null when it failed. */
  readonly reward: number | null;
  /** null when it did not. */
  readonly exception: RolloutException | null;
}

/** An attempt failed and another one follows. */
export interface RolloutRetryEvent extends RolloutId {
  readonly type: "rollout-retry";
  readonly exception: RolloutException;
  /** Milliseconds until it begins. */
  readonly waitMs: number;
}

/** A service answered 429: fewer rollouts at once from now on, and none begins before the wait is over. */
export interface SlowDownEvent {
  readonly type: "slow-down";
  /** Rollouts at the same time from now on. */
  readonly concurrency: number;
  /** Milliseconds, what the service asked for included. */
  readonly waitMs: number;
}

/** No 429 for a while: more rollouts at once again. */
export interface SpeedUpEvent {
  readonly type: "speed-up";
  /** Rollouts at the same time from now on. */
  readonly concurrency: number;
}

/** All rollouts of a scenario are over. */
export interface GroupEndEvent {
  readonly type: "group-end";
  /** The scenario's index. */
  readonly group: number;
  readonly trajectories: number;
  readonly exceptions: number;
  /** NaN when all failed. */
  readonly rewardMean: number;
}

/** What happens while rollouts run, told apart by `type`. */
export type RolloutEvent = RolloutStartEvent | RolloutEndEvent | RolloutRetryEvent | SlowDownEvent | SpeedUpEvent | GroupEndEvent;
