/** Concurrent execution of many rollouts. */
export { TooManyExceptionsError } from "./errors.ts";
export type {
  GroupEndEvent,
  RolloutEndEvent,
  RolloutEvent,
  RolloutId,
  RolloutReplaceEvent,
  RolloutRetryEvent,
  RolloutStartEvent,
  SlowDownEvent,
  SpeedUpEvent,
} from "./events.ts";
export { gatherTrajectoryGroups, streamTrajectoryGroups } from "./gather.ts";
export type {
  AfterEachResult,
  ConcurrencyByKey,
  GatherOptions,
  GatherProgress,
  RetryOptions,
  Rollout,
  RolloutContext,
  RolloutSampling,
  StreamOptions,
} from "./options.ts";
export { rolloutSeed } from "./seed.ts";
