/**
 * Whetstone: train agents from TypeScript. Run them, keep what they did, learn from it, run them again.
 *
 * Everything here speaks the service's interface over HTTP and loads no native code.
 *
 * @module whetstone
 */

import { connectWith, type ConnectOptions, type Service } from "./client/index.ts";
import { followJob } from "./jobs/index.ts";
import { assertTrainable } from "./trajectory/index.ts";

/**
 * Connects to a service: the one at `baseUrl` or `WHETSTONE_BASE_URL`, else the embedded one of the data directory, which is
 * started if it is not running.
 *
 * @throws ConfigError `E_CONFIG` for an address that is none, or an address without a key.
 * @example
 * ```ts
 * const service = await connect();
 * const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny", returnExisting: true });
 * ```
 */
export function connect(options: ConnectOptions = {}): Promise<Service> {
  // Here and not in a room: the client knows neither RxJS nor trajectories, and only the root sees all three.
  return connectWith({ followJob, examineBatch: assertTrainable }, options);
}

// A service, and what is on it.
export { Job, Model, ModelCheckpoint, Service } from "./client/index.ts";
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

// A task, and training on it (all of it under `whetstone/environment` and `whetstone/train`).
export { defineEnvironment, reward, similarity } from "./environment/index.ts";
export type { Environment } from "./environment/index.ts";
export { TrainingRun, trainRl, trainSft } from "./train/index.ts";
export type { RunEvent, RunResult } from "./train/index.ts";

// Following training jobs, for those who use RxJS.
export { pollJob, watchCheckpoints } from "./jobs/index.ts";
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
