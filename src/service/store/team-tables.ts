/** Row types of the tables of the migration `0008-team`: API keys, entities, plans of rollouts, the audit log. See `tables.ts`. */

/** API key. */
export interface ApiKeyRow {
  id: string;
  name: string;
  /** Entity of the rows that the key has access to; null = all. */
  entity: string | null;
  /** Rights as JSON. */
  scopes: string;
  /** Only model that the key has access to; null = all of the entity. */
  model_id: string | null;
  /** Hash of the secret: SHA-256, hexadecimal. */
  hash: string;
  /** Hash of the secret before the last rotation; null before the first one. */
  previous_hash: string | null;
  /** Time until which the previous secret is accepted. */
  previous_until: string | null;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
  /** Limits of the key as JSON. */
  limits: string;
}

/** Entity with limits. */
export interface EntityRow {
  entity: string;
  /** Limits as JSON. */
  limits: string;
}

/** Use of a key on a day. */
export interface UsageRow {
  /** Day in UTC, `YYYY-MM-DD`. */
  day: string;
  /** Entity of the key; empty for a key of all entities. */
  entity: string;
  /** Identifier of the principal. */
  key_id: string;
  requests: number;
  prompt_tokens: number;
  generated_tokens: number;
}

/** Plan of rollouts that workers play. */
export interface RolloutPlanRow {
  id: string;
  /** Entity of the plan's model; tasks have the same. */
  entity: string;
  /** Name of the environment. */
  environment: string;
  /** SHA-256 of the environment's sources, hexadecimal. */
  environment_hash: string;
  model_id: string | null;
  /** Further settings of the rollouts as JSON, see `PlanSettings` of `rollout-tasks/wire.ts`. */
  settings: string;
  /** Labels as JSON. */
  metadata: string;
  /** Rollouts per group. */
  group_size: number;
  /** Leases of a task after which it fails if none delivered an outcome. */
  max_leases: number;
  /** `deleted`: invisible, its rows and outcomes are being removed. */
  status: "open" | "cancelled" | "deleted";
  /** Number of tasks. */
  tasks: number;
  /** Number of finished tasks, and the `finished_seq` of the last one. */
  finished: number;
  /** Number of finished tasks that have failed. */
  failed: number;
  /** Bytes of the outcomes of all finished tasks. */
  outcome_bytes: number;
  created_at: string;
  expires_at: string;
}

/** Scenario of a plan. */
export interface RolloutGroupRow {
  plan_id: string;
  group_index: number;
  /** Scenario as JSON. */
  scenario: string;
}

/** Rollout of a plan. Of a cancelled plan, tasks keep their state. */
export interface RolloutTaskRow {
  id: string;
  plan_id: string;
  entity: string;
  /** Model of the plan. */
  model_id: string | null;
  /** Position in the plan; tasks are leased in this order. */
  seq: number;
  group_index: number;
  rollout_index: number;
  state: "pending" | "leased" | "done" | "failed";
  /** Number of leases so far, without released ones. */
  leases: number;
  /** Worker of the current or last lease. */
  worker: string | null;
  /** Token of the current or last lease. After an expiry, the task keeps it until the next lease; null after a release. */
  lease_token: string | null;
  /** Time at which the lease expires; null for a task that is not leased. */
  lease_until: string | null;
  /** Position in the order in which the plan's tasks finished, from 1. */
  finished_seq: number | null;
  /** Failure of a task without an outcome; null otherwise. */
  error_message: string | null;
  outcome_sha256: string | null;
  outcome_bytes: number | null;
}

/** Record of the audit log. */
export interface AuditLogRow {
  /** Identifier that sorts by time. */
  id: string;
  created_at: string;
  request_id: string;
  entity: string;
  key_id: string;
  /** Operation id of the route. */
  action: string;
  object: string | null;
  /** HTTP status of the answer; null before the answer. */
  status: number | null;
}
