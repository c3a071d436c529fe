/** Row types of all tables, as after the last migration; `team-tables.ts` has the later ones. */
import type { Kysely } from "kysely";
import type { JobType } from "../../base/schema/index.ts";
import type { ApiKeyRow, AuditLogRow, EntityRow, RolloutGroupRow, RolloutPlanRow, RolloutTaskRow, UsageRow } from "./team-tables.ts";

/** Row types of the database. JSON is stored as text, times as ISO 8601 in UTC. */
export interface Tables {
  models: ModelRow;
  checkpoints: CheckpointRow;
  jobs: JobRow;
  job_events: JobEventRow;
  artifacts: ArtifactRow;
  artifact_files: ArtifactFileRow;
  idempotency_keys: IdempotencyKeyRow;
  responses: ResponseRow;
  sessions: SessionRow;
  session_turns: SessionTurnRow;
  files: FileRow;
  checkpoint_aliases: CheckpointAliasRow;
  fine_tuning_jobs: FineTuningJobRow;
  api_keys: ApiKeyRow;
  entities: EntityRow;
  usage: UsageRow;
  rollout_plans: RolloutPlanRow;
  rollout_groups: RolloutGroupRow;
  rollout_tasks: RolloutTaskRow;
  audit_log: AuditLogRow;
  storage: StorageRow;
}

/** Database connection, or a transaction on it. */
export type Store = Kysely<Tables>;

/** Trainable model. */
export interface ModelRow {
  id: string;
  entity: string;
  project: string;
  name: string;
  base_model: string;
  /** Adapter settings as JSON; null for full-parameter training. */
  lora: string | null;
  /** Seed of the adapter's initial weights. */
  seed: number;
  /** Step of the next checkpoint. Steps are never reused, even if the newest checkpoint is deleted. */
  next_step: number;
  created_at: string;
}

/** Checkpoint of a model. */
export interface CheckpointRow {
  id: string;
  model_id: string;
  step: number;
  metrics: string;
  /** Path relative to the data directory; null for a step 0 that is the base itself. */
  state_dir: string | null;
  /** Kind of the job that wrote the optimizer state in `state_dir`; null without optimizer state. */
  optimizer_kind: JobRow["type"] | null;
  created_at: string;
  /** Lineage as JSON; null for checkpoints created before lineage was recorded. */
  lineage: string | null;
  /** 1 if retention must keep the checkpoint, else 0. */
  pinned: number;
  /**
   * Digests of the checkpoint's files as JSON, see `disk/digests.ts`. Null without files, and for checkpoints created before
   * digests were recorded, until their first use. May list an optimizer state that has been deleted; `optimizer_kind` is authoritative.
   */
  digests: string | null;
}

/** Training job. */
export interface JobRow {
  id: string;
  /** Position in the order of creation over all jobs. */
  seq: number;
  /** Entity of the model. The job outlives the model. */
  entity: string;
  model_id: string;
  type: JobType;
  status: "queued" | "running" | "succeeded" | "failed" | "cancelled";
  /** Request as JSON, without its data. */
  config: string;
  /** Optimizer steps committed in `progress_dir`. */
  committed_steps: number;
  /** Path relative to the data directory; null before the first commit of progress. */
  progress_dir: string | null;
  /**
   * Digests of the job's files (groups, committed progress, token report) as JSON. Null without files, and for jobs created before digests
   * were recorded.
   */
  digests: string | null;
  /** Starts since the last commit of progress. */
  attempts: number;
  /** 1 if cancellation was requested, else 0. */
  cancel_requested: number;
  /** Priority among the queued jobs of the entity; lower values run first. */
  priority: number;
  /** Trace context of the request that created the job, as in its header `traceparent` (W3C Trace Context); null without one. */
  traceparent: string | null;
  /** 1 if the job must not run until it is resumed, else 0. A running job stops after its current step. */
  is_paused: number;
  /** Number of claims of the job, and of its endings by other processes: the fencing token of the process that runs it. */
  lease_token: number;
  /** Process that has claimed the job last; null for a job that does not run. */
  lease_owner: string | null;
  /** Time of the database, in milliseconds since 1970, at which other processes may claim the job; null for a job without a lease. */
  lease_expires_ms: number | null;
  error_message: string | null;
  /** Step of the checkpoint that the job created. */
  step: number | null;
  created_at: string;
  training_start: string | null;
  training_end: string | null;
}

/** Event in the history of a training job. */
export interface JobEventRow {
  id: string;
  job_id: string;
  /** Sequence number within the job: 1, 2, 3, … */
  seq: number;
  /** Key unique within the job, which identifies an event that is emitted again after a crash. */
  event_key: string;
  /** Type of the event. `note` is a message for the fine-tuning interface alone; the job interface does not list it. */
  type: "training_started" | "gradient_step" | "warning" | "training_ended" | "training_failed" | "training_cancelled" | "note";
  data: string;
  created_at: string;
}

/** Version of an artifact. */
export interface ArtifactRow {
  id: string;
  entity: string;
  project: string;
  name: string;
  version: number;
  /** State of the version. `deleted` keeps only the version number, which is not reused. */
  state: "open" | "committed" | "deleted";
  metadata: string;
  created_at: string;
}

/** File of an artifact version. Its contents are the blob with the digest `sha256`. */
export interface ArtifactFileRow {
  artifact_id: string;
  path: string;
  size_bytes: number;
  sha256: string;
}

/** Stored response of the Responses API. */
export interface ResponseRow {
  id: string;
  /** Owner of the response, see `Principal.owner`. */
  owner: string;
  /** Response that this one continues; null for the first of a conversation. */
  previous_id: string | null;
  /** Input items as JSON. */
  input: string;
  /** The response as JSON. */
  response: string;
  /** Bytes of both JSON texts. */
  size_bytes: number;
  created_at: string;
}

/** Stored response to a request with an idempotency key. */
export interface IdempotencyKeyRow {
  /** Entity of the caller; empty for a caller that belongs to none. */
  entity: string;
  route: string;
  key: string;
  /** Digest of the request body. */
  digest: string;
  status: number;
  body: string;
  created_at: string;
}

/** Session of an agent. */
export interface SessionRow {
  id: string;
  /** Hash of the session's API key: SHA-256, hexadecimal. */
  key: string;
  entity: string;
  /** Model that is sampled; null for a base model, and for sessions created before models were recorded. */
  model_id: string | null;
  /** Model that every request samples, as named at the creation. */
  model: string;
  /** Chat fields as JSON, for requests that do not set them. */
  sampling_defaults: string;
  /** Chat fields as JSON, for all requests; they replace fields that a request sets. */
  sampling_overrides: string;
  /** Labels of the trajectory as JSON. */
  metadata: string;
  reward: number | null;
  /** Measurements as JSON. */
  metrics: string;
  max_requests: number;
  /** Max sampled tokens; null = no limit. */
  max_tokens: number | null;
  /** Number of recorded turns. */
  requests: number;
  /** Number of sampled tokens of the recorded turns. */
  tokens: number;
  /** Greatest `seq` of a recorded turn; 0 without turns. */
  last_seq: number;
  created_at: string;
  /** Time until which requests are accepted. */
  open_until: string;
  /** Time at which the session is deleted. */
  expires_at: string;
  finished_at: string | null;
}

/** Recorded turn of a session: a request and its answer. */
export interface SessionTurnRow {
  session_id: string;
  /** Number of the turn in its session, in order of the requests' starts. */
  seq: number;
  /** API dialect of the request. */
  dialect: string;
  /** Digest of the request's body, see `CallSource.digest`. A repeated request has the same dialect and digest. */
  digest: string;
  /** Sampled chat completion request as JSON, with the session's fields. */
  request: string;
  /** Chat completion as JSON, with token ids and log-probabilities. */
  completion: string;
  /** 1 if a client received the answer; 0 if all had disconnected. Turns that no client received are not part of the trajectory. */
  is_delivered: number;
  created_at: string;
}

/** Uploaded file of the fine-tuning interface, or a file that a fine-tuning job made. Its contents are the only file of an artifact. */
export interface FileRow {
  /** Identifier of the form `file-…`. */
  id: string;
  /** Entity of the artifact. */
  entity: string;
  artifact_id: string;
  filename: string;
  purpose: string;
  size_bytes: number;
  created_at: string;
  /** Time from which the file does not exist for requests; null = never. */
  expires_at: string | null;
}

/** Additional name of a checkpoint in requests, such as `ft:…`. */
export interface CheckpointAliasRow {
  name: string;
  checkpoint_id: string;
  /** Job that created the checkpoint. */
  job_id: string;
  /** Number of the optimizer step in the job; null for the name of the job's final model. */
  job_step: number | null;
}

/** Storage of the files, if it is outside of the data directory: at most one row. */
export interface StorageRow {
  /** Identity, which the storage holds, too. */
  id: string;
  /** URL without credentials. */
  url: string;
}

/** Fine-tuning job. The training job that runs it has the state. */
export interface FineTuningJobRow {
  /** Identifier of the form `ftjob-…`. */
  id: string;
  training_job_id: string;
  /** Validated request with resolved hyperparameters, as JSON. */
  request: string;
  /** Labels as JSON; null without labels. */
  metadata: string | null;
  /** Identifier of the file with the metrics of each step; null before the job has succeeded. */
  result_file: string | null;
}
