/** Bounds of one service. */
export interface ServiceLimits {
  /** The largest JSON body, in bytes; most routes have lower bounds of their own. @default 64 MiB */
  readonly maxBodyBytes: number;
  /** Bytes of the JSON bodies over 1 MiB that are in memory at one time; further ones wait in their sockets. @default 128 MiB */
  readonly maxBodiesBytes: number;
  /** The largest file of an artifact, in bytes. @default 1 GiB */
  readonly maxArtifactFileBytes: number;
  /** Policies that stay loaded for sampling while nobody uses them. @default 4 */
  readonly maxIdlePolicies: number;
  /** Trained models that stay loaded between jobs. @default 2 */
  readonly maxWarmModels: number;
  /** Optimizer steps between two commits of an SFT job's progress: what a crash can cost. @default 50 */
  readonly commitEverySteps: number;
  /** Deaths of the trainer during one job, without a commit of progress in between, after which the job fails. @default 5 */
  readonly maxJobAttempts: number;
  /** What all checkpoints may take on disk, in bytes: beyond it the oldest go that nothing needs. @default null, no bound */
  readonly maxCheckpointBytes: number | null;
  /** Age in milliseconds, from its end, at which a finished job is deleted with its events and token report. @default null, never */
  readonly maxJobAgeMs: number | null;
  /** Age in milliseconds, from its creation, at which an artifact version is deleted that no unfinished job reads. @default null, never */
  readonly maxArtifactAgeMs: number | null;
  /** Milliseconds without a byte after which a request whose body is not complete is answered 408 and its connection closed. @default 30 000 */
  readonly bodyTimeoutMs: number;
  /** Bytes that must stay free on the file system of the data directory: below it new work is refused. 0 = no guard. @default 64 MiB */
  readonly minFreeBytes: number;
}

/** The defaults. */
export const DEFAULT_LIMITS: ServiceLimits = {
  maxBodyBytes: 64 * 1024 * 1024,
  maxBodiesBytes: 128 * 1024 * 1024,
  maxArtifactFileBytes: 1024 * 1024 * 1024,
  maxIdlePolicies: 4,
  maxWarmModels: 2,
  commitEverySteps: 50,
  maxJobAttempts: 5,
  maxCheckpointBytes: null,
  maxJobAgeMs: null,
  maxArtifactAgeMs: null,
  bodyTimeoutMs: 30_000,
  minFreeBytes: 64 * 1024 * 1024,
};
