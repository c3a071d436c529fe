/**
 * Root entry of the package: connects to a service, runs agents as rollouts, records them as trajectories, and trains on them.
 *
 * Everything exported here talks to a service over HTTP and loads no native code.
 *
 * @module whetstone
 */

import { connectWith } from "./library/client/connect.ts";
import type { ConnectOptions, Service } from "./library/client/index.ts";
import { followJob } from "./library/follow/poll-job.ts";
import { assertTrainable } from "./base/trajectory/index.ts";

/**
 * Connects to the service at `baseUrl` or `WHETSTONE_BASE_URL`. Without an address, connects to the embedded service of the data directory
 * and starts it if it is not running.
 *
 * @param options - Address, key or data directory, and connection limits; every field has a default.
 * @returns a connection; close it with `close()` or `await using`.
 * @throws ConfigError `E_CONFIG` if the address is not a valid URL, if an address is given without an API key or together with `dataDir`,
 *   or if a count is out of range.
 * @example
 * ```ts
 * const service = await connect();
 * const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny", returnExisting: true });
 * ```
 */
export function connect(options: ConnectOptions = {}): Promise<Service> {
  // The client folder must not import RxJS or trajectories; only the package root depends on all three.
  return connectWith({ followJob, examineBatch: assertTrainable }, options);
}

// A service and its resources (complete API: `whetstone/client`).
export { Job, Model, ModelCheckpoint, Service } from "./library/client/index.ts";
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
} from "./library/client/index.ts";

// Rollouts as data (complete API: `whetstone/trajectory`).
export { preflight, Trajectory, trajectory, TrajectoryBuilder, TrajectoryGroup, trajectoryGroups } from "./base/trajectory/index.ts";
export type { Finding, GroupStatistics, Policy, SampledTurn, SampleOptions, Summary, TrajectoryGroups } from "./base/trajectory/index.ts";

// Concurrent rollouts (complete API: `whetstone/rollout`).
export { gatherTrajectoryGroups, streamTrajectoryGroups } from "./library/rollout/index.ts";
export type { GatherOptions, GatherProgress, Rollout, RolloutContext } from "./library/rollout/index.ts";

// Environments and training runs (complete API: `whetstone/environment` and `whetstone/train`).
export { defineEnvironment, reward, similarity } from "./library/environment/index.ts";
export type { Environment } from "./library/environment/index.ts";
export { TrainingRun, trainRl, trainSft } from "./training/train/index.ts";
export type { RunEvent, RunResult } from "./training/train/index.ts";

// Training jobs as RxJS observables (complete API: `whetstone/follow`).
export { pollJob, watchCheckpoints } from "./library/follow/index.ts";
export type { PollJobOptions } from "./library/follow/index.ts";

// Datasets (complete API: `whetstone/dataset`).
export { uploadDataset } from "./library/dataset/index.ts";

// Chat types exactly as on the wire.
export type { ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from "./base/schema/index.ts";

// Errors: match on `code` (complete API: `whetstone/errors`).
export { WhetstoneError } from "./base/errors.ts";
export type { ErrorCode } from "./base/errors.ts";
export { ConnectionError, HttpError, ProtocolError } from "./library/client/index.ts";
export { JobCancelledError, JobFailedError, JobTimeoutError } from "./library/follow/index.ts";
export { PreflightError } from "./base/trajectory/index.ts";
export { TooManyExceptionsError } from "./library/rollout/index.ts";
