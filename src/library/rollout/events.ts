/** Events of a run of rollouts, for the option `onEvent`. */
import type { RolloutException } from "../../base/schema/index.ts";

/** Identity of an attempt of a rollout: a group has the rollouts of one scenario. */
export interface RolloutId {
  /** Index of the scenario. */
  readonly group: number;
  /** Index of the rollout in its group, from 0. */
  readonly index: number;
  /** Number of the attempt: 0, then 1 for the first retry … */
  readonly attempt: number;
}

/** Start of an attempt. */
export interface RolloutStartEvent extends RolloutId {
  /** Discriminant of {@link RolloutEvent}. */
  readonly type: "rollout-start";
  /** Seed of the rollout, the same in every attempt; a replacement has another one. */
  readonly seed: number;
}

/** End of a rollout, with its reward or its failure. */
export interface RolloutEndEvent extends RolloutId {
  /** Discriminant of {@link RolloutEvent}. */
  readonly type: "rollout-end";
  /** Reward; null for a failed rollout. */
  readonly reward: number | null;
  /** Failure; null for a successful rollout. */
  readonly exception: RolloutException | null;
}

/** Failure of an attempt that will be retried. */
export interface RolloutRetryEvent extends RolloutId {
  /** Discriminant of {@link RolloutEvent}. */
  readonly type: "rollout-retry";
  /** Failure of the attempt. */
  readonly exception: RolloutException;
  /** Milliseconds until the retry starts. */
  readonly waitMs: number;
}

/** Failure of a rollout that a new rollout replaces. */
export interface RolloutReplaceEvent extends RolloutId {
  /** Discriminant of {@link RolloutEvent}. */
  readonly type: "rollout-replace";
  /** Failure of the replaced rollout's last attempt. */
  readonly exception: RolloutException;
  /** Number of the replacement that starts, from 1. */
  readonly replacement: number;
}

/** Response 429 of a service: the run reduces its concurrency, and starts no rollout before the wait is over. */
export interface SlowDownEvent {
  /** Discriminant of {@link RolloutEvent}. */
  readonly type: "slow-down";
  /** Maximum concurrent rollouts from now on. */
  readonly concurrency: number;
  /** Milliseconds to wait: the back-off, or the service's `Retry-After` if it is longer. */
  readonly waitMs: number;
}

/** Increase of the concurrency after a period without 429. */
export interface SpeedUpEvent {
  /** Discriminant of {@link RolloutEvent}. */
  readonly type: "speed-up";
  /** Maximum concurrent rollouts from now on. */
  readonly concurrency: number;
}

/** End of the last rollout of a scenario. */
export interface GroupEndEvent {
  /** Discriminant of {@link RolloutEvent}. */
  readonly type: "group-end";
  /** Index of the scenario. */
  readonly group: number;
  /** Number of successful rollouts. */
  readonly trajectories: number;
  /** Number of failed rollouts. */
  readonly exceptions: number;
  /** Mean reward; NaN if all rollouts failed. */
  readonly rewardMean: number;
}

/** Events of a run, distinguished by `type`. */
export type RolloutEvent =
  | RolloutStartEvent
  | RolloutEndEvent
  | RolloutRetryEvent
  | RolloutReplaceEvent
  | SlowDownEvent
  | SpeedUpEvent
  | GroupEndEvent;
