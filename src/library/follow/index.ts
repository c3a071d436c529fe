/** Following of training jobs and checkpoints, as RxJS Observables or as an AsyncIterable. */
export { JobCancelledError, JobFailedError, JobTimeoutError } from "./errors.ts";
export { pollJob, type JobSource, type PollJobOptions } from "./poll-job.ts";
export { watchCheckpoints, type CheckpointSource, type WatchCheckpointsOptions } from "./watch-checkpoints.ts";
