/** Running many rollouts at once. */
export { TooManyExceptionsError } from "./errors.ts";
export { gatherTrajectoryGroups, streamTrajectoryGroups } from "./gather.ts";
export type { AfterEachResult, GatherOptions, GatherProgress, Rollout, RolloutContext } from "./options.ts";
export { rolloutSeed } from "./seed.ts";
