/**
 * Whetstone: train agents from TypeScript. Run them, keep what they did, learn from it, run them again.
 *
 * Everything here speaks the service's interface over HTTP and loads no native code.
 *
 * @module whetstone
 */

// Connecting to a service, and what is on it.
export { connect } from "./jobs/index.ts";
export { Job, Model, Service } from "./client/index.ts";
export type {
  CallOptions,
  ConnectOptions,
  CreateModelOptions,
  JobEvent,
  JobResult,
  RlOptions,
  SftOptions,
  TrainingJobInfo,
  TrainOptions,
  TrainSftOptions,
} from "./client/index.ts";

// Rollouts as data.
export { preflight, Trajectory, trajectory, TrajectoryBuilder, TrajectoryGroup, trajectoryGroups } from "./trajectory/index.ts";
export type { Finding, GroupStatistics, Policy, SampledTurn, SampleOptions, Summary, TrajectoryGroups } from "./trajectory/index.ts";

// Running many rollouts at once.
export { gatherTrajectoryGroups, streamTrajectoryGroups } from "./rollout/index.ts";
export type { GatherOptions, GatherProgress, Rollout, RolloutContext } from "./rollout/index.ts";

// Following training jobs, for those who use RxJS.
export { pollJob } from "./jobs/index.ts";
export type { PollJobOptions } from "./jobs/index.ts";

// Datasets (all of it under `whetstone/dataset`).
export { uploadDataset } from "./dataset/index.ts";

// The wire's chat types, one to one.
export type { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from "./schema/index.ts";

// Errors: match on `code`.
export { WhetstoneError } from "./errors.ts";
export type { ErrorCode } from "./errors.ts";
export { ConnectionError, HttpError, ProtocolError } from "./client/index.ts";
export { JobCancelledError, JobFailedError, JobTimeoutError } from "./jobs/index.ts";
export { PreflightError } from "./trajectory/index.ts";
export { TooManyExceptionsError } from "./rollout/index.ts";
