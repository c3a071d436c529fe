import type { Kysely } from "kysely";

/** Rows as the database holds them. JSON is text, times are ISO 8601 in UTC. */
export interface Tables {
  models: ModelRow;
  checkpoints: CheckpointRow;
  jobs: JobRow;
  job_events: JobEventRow;
  artifacts: ArtifactRow;
  artifact_files: ArtifactFileRow;
  idempotency_keys: IdempotencyKeyRow;
}

/** A database or a transaction on it. */
export type Store = Kysely<Tables>;

export interface ModelRow {
  id: string;
  entity: string;
  project: string;
  name: string;
  base_model: string;
  /** JSON of the adapter settings, null for full-parameter training. */
  lora: string | null;
  /** Seed of the adapter's first weights. */
  seed: number;
  /** Steps are never given twice, also after the newest checkpoint was deleted. */
  next_step: number;
  created_at: string;
}

export interface CheckpointRow {
  id: string;
  model_id: string;
  step: number;
  metrics: string;
  /** Relative to the data directory; null for a step 0 that is the base itself. */
  state_dir: string | null;
  /** Kind of the job whose optimizer state lies in `state_dir`; null when there is none. */
  optimizer_kind: "rl" | "sft" | null;
  created_at: string;
  /** JSON; null for what was made before it was kept. */
  lineage: string | null;
  /** 1 = retention leaves it. */
  pinned: number;
  /**
   * JSON of the digests of its files, see `stored-files/digests.ts`; null without files, and until the first use for checkpoints from
   * before there were digests. The optimizer state may be listed and gone: `optimizer_kind` says whether it was kept.
   */
  digests: string | null;
}

export interface JobRow {
  id: string;
  /** Order of creation over all jobs. */
  seq: number;
  model_id: string;
  type: "rl" | "sft";
  status: "queued" | "running" | "succeeded" | "failed" | "cancelled";
  /** JSON of the request without its data. */
  config: string;
  /** Optimizer steps that are committed in `progress_dir`. */
  committed_steps: number;
  /** Relative to the data directory; null before the first progress commit. */
  progress_dir: string | null;
  /** JSON of the digests of its files: groups, committed progress, token report. Null without any, and for jobs from before there were digests. */
  digests: string | null;
  /** Starts since the last commit: a job that takes the process down each time must end. */
  attempts: number;
  /** 1 once somebody asked to cancel. */
  cancel_requested: number;
  error_message: string | null;
  /** Step of the checkpoint it made. */
  step: number | null;
  created_at: string;
  training_start: string | null;
  training_end: string | null;
}

export interface JobEventRow {
  id: string;
  job_id: string;
  /** 1, 2, 3 … per job. */
  seq: number;
  /** Unique per job: what makes an event that is emitted again after a crash the same event. */
  event_key: string;
  type: "training_started" | "gradient_step" | "warning" | "training_ended" | "training_failed" | "training_cancelled";
  data: string;
  created_at: string;
}

export interface ArtifactRow {
  id: string;
  entity: string;
  project: string;
  name: string;
  version: number;
  /** `deleted`: only the number of the version is left, which is not given again. */
  state: "open" | "committed" | "deleted";
  metadata: string;
  created_at: string;
}

export interface ArtifactFileRow {
  artifact_id: string;
  path: string;
  size_bytes: number;
  sha256: string;
}

export interface IdempotencyKeyRow {
  route: string;
  key: string;
  /** Digest of the request body. */
  digest: string;
  status: number;
  body: string;
  created_at: string;
}
