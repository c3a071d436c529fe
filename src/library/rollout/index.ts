/** Concurrent execution of many rollouts. */
export { TooManyExceptionsError } from "./errors.ts";
export type * from "./events.ts";
export { gatherTrajectoryGroups, streamTrajectoryGroups } from "./gather.ts";
export type * from "./options.ts";
export { rolloutSeed } from "./seed.ts";
