/** Resources of a connected service: models, checkpoints, jobs, artifacts and chat completions. The root entry has `connect`. */
export type { CallOptions, CreateOptions, ServiceFeatures } from "./api.ts";
export type {
  ArtifactFacts,
  ArtifactFileInfo,
  Artifacts,
  ArtifactSummary,
  ArtifactVersion,
  CreateArtifactOptions,
  FileBody,
  ListArtifactsOptions,
} from "./artifacts.ts";
export type { AuditLogOptions, AuditRecord } from "./audit-log.ts";
export type { AddBaseModelOptions } from "./base-models.ts";
export type { Chat, ChatCompletions, ChatParams } from "./chat.ts";
export { ModelCheckpoint, type Checkpoints, type DownloadOptions, type Lineage, type ListCheckpointsOptions } from "./checkpoints.ts";
export type { ConnectOptions } from "./connect.ts";
export { ConnectionError, HttpError, ProtocolError, type HttpErrorOptions } from "./errors.ts";
export { Job, type JobResult } from "./job.ts";
export type { PreferenceDataset, SftDataset } from "./job-bodies.ts";
export type { Entities, EntityInfo, EntityLimitsInfo, KeyUsageInfo, UsageOptions } from "./entities.ts";
export type { UpstreamInfo, Upstreams } from "./upstreams.ts";
export type { CreatedKeyInfo, CreateKeyOptions, KeyInfo, KeyLimitsInfo, Keys, ListKeysOptions, RotateKeyOptions } from "./keys.ts";
export {
  Model,
  type GroupSource,
  type ModelPolicy,
  type TrainOptions,
  type TrainPreferencesOptions,
  type TrainSftOptions,
} from "./model.ts";
export type { ListModelsOptions, Models } from "./models.ts";
export type { ListOptions } from "./pages.ts";
export type { BatchFinding, ExamineOptions, FollowOptions } from "./ports.ts";
export type {
  CreateRolloutPlanOptions,
  ExtendedLeasesInfo,
  ExtendLeasesOptions,
  FinishedRolloutsPage,
  FinishedRolloutsOptions,
  LeasedRolloutInfo,
  LeasedRolloutsPage,
  LeaseRolloutsOptions,
  ListRolloutPlansOptions,
  RolloutGroupInput,
  RolloutLease,
  RolloutPlanInfo,
  RolloutPosition,
  RolloutTaskInfo,
  WorkerEnvironment,
} from "./rollout-plan-types.ts";
export type { RolloutPlans } from "./rollout-plans.ts";
export { Service } from "./service.ts";
export type {
  CreateSessionOptions,
  ListSessionsOptions,
  ReadSessionOptions,
  CreatedSessionInfo,
  SessionInfo,
  SessionSampling,
  SessionScore,
  Sessions,
  SessionUrls,
} from "./sessions.ts";
export type { ListEventsOptions, ListJobsOptions, TrainingJobs } from "./training-jobs.ts";
export type {
  CamelKeys,
  CreateModelOptions,
  DeletedCheckpoints,
  DeletedModel,
  JobEvent,
  ModelInfo,
  ModelSummary,
  PreferenceOptions,
  RlOptions,
  ServedModel,
  SftOptions,
  TrainingJobInfo,
} from "./wire.ts";

export type { CamelCase } from "../../base/util/letter-case.ts";
