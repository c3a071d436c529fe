/** Limits of a service on requests, memory, jobs, disk space and the age of records, and their defaults. */

/** Limits of a service on sizes, counts and times; each has a default. */
export interface ServiceLimits {
  /** Max bytes of a JSON body. Most routes have lower limits. @default 64 MiB */
  readonly maxBodyBytes: number;
  /** Max bytes of all JSON bodies over 1 MiB in memory at one time. Further bodies wait unread in their sockets. @default 128 MiB */
  readonly maxBodiesBytes: number;
  /** Max bytes of one file of an artifact. @default 1 GiB */
  readonly maxArtifactFileBytes: number;
  /** Max tasks of a rollout plan. @default 1 000 000 */
  readonly maxRolloutTasks: number;
  /** Max bytes of the outcomes of a rollout plan. @default 16 GiB */
  readonly maxRolloutBytes: number;
  /** Max unused policies that stay loaded for sampling. @default 4 */
  readonly maxIdlePolicies: number;
  /** Max trained models that stay loaded between jobs. @default 2 */
  readonly maxWarmModels: number;
  /** Optimizer steps between two commits of the progress of an SFT or preference job. A crash loses at most this many steps. @default 50 */
  readonly commitEverySteps: number;
  /** Trainer crashes during one job, without a commit of progress in between, after which the job fails. @default 5 */
  readonly maxJobAttempts: number;
  /**
   * Milliseconds after which a job of a process that has died resumes in another process of the same Postgres database. A process that
   * does not reach the database for this long stops its job. No effect on SQLite. @default 30 000
   */
  readonly jobLeaseMs: number;
  /** Max bytes of all checkpoints on disk. Above it, the oldest checkpoints that nothing needs are deleted. @default null, no limit */
  readonly maxCheckpointBytes: number | null;
  /** Milliseconds after its end at which a finished job is deleted with its events and token report. @default null, never */
  readonly maxJobAgeMs: number | null;
  /** Milliseconds after its creation at which an artifact version that no unfinished job reads is deleted. @default null, never */
  readonly maxArtifactAgeMs: number | null;
  /** Milliseconds after which files in the quarantine are deleted. @default 30 days; null, never */
  readonly maxQuarantineAgeMs: number | null;
  /** Milliseconds without a byte after which an incomplete request body is answered with 408 and its connection closed. @default 30 000 */
  readonly bodyTimeoutMs: number;
  /** Min free bytes on the file system of the data directory. Below it, new work is rejected. 0 = no check. @default 64 MiB */
  readonly minFreeBytes: number;
  /** Max bytes of local copies of files in an S3 storage. Files in use may take more. Rejected without such a storage. @default 20 GB */
  readonly maxCacheBytes: number;
  /** Max bytes per second, on average, that the daily verification of stored files reads. 0 = no such verification. @default 4 000 000 */
  readonly scrubBytesPerSecond: number;
}

/** Default limits, as documented at {@link ServiceLimits}. */
export const DEFAULT_LIMITS: ServiceLimits = {
  maxBodyBytes: 64 * 1024 * 1024,
  maxBodiesBytes: 128 * 1024 * 1024,
  maxArtifactFileBytes: 1024 * 1024 * 1024,
  maxRolloutTasks: 1_000_000,
  maxRolloutBytes: 16 * 1024 * 1024 * 1024,
  maxIdlePolicies: 4,
  maxWarmModels: 2,
  commitEverySteps: 50,
  maxJobAttempts: 5,
  jobLeaseMs: 30_000,
  maxCheckpointBytes: null,
  maxJobAgeMs: null,
  maxArtifactAgeMs: null,
  maxQuarantineAgeMs: 30 * 86_400_000,
  bodyTimeoutMs: 30_000,
  minFreeBytes: 64 * 1024 * 1024,
  maxCacheBytes: 20_000_000_000,
  scrubBytesPerSecond: 4_000_000,
};
