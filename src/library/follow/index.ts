/** Following of training jobs and checkpoints, as RxJS Observables or as an AsyncIterable. */
export { JobCancelledError, JobFailedError, JobTimeoutError } from "./errors.ts";
export { pollJob } from "./poll-job.ts";
export type { JobSource, PollJobOptions } from "./poll-job.ts";
export { watchCheckpoints } from "./watch-checkpoints.ts";
export type { CheckpointSource, WatchCheckpointsOptions } from "./watch-checkpoints.ts";
