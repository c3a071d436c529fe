import { createHash } from "node:crypto";
import { PostgresAdapter, sql, type Kysely, type Migration } from "kysely";
import { parsePolicyName } from "../common/names.ts";

/** Migrations by name, oldest first. A released migration is never edited. */
export const MIGRATIONS: Record<string, Migration> = {
  "0001-initial": { up: initial },
  "0002-lineage": { up: lineage },
  "0003-digests": { up: digests },
  "0004-gateway": { up: gateway },
  "0005-session-key-hashes": { up: sessionKeyHashes },
  "0006-transaction-count": { up: transactionCount },
  "0007-fine-tuning": { up: fineTuning },
  "0008-keys": { up: keys },
  "0009-rollout-tasks": { up: rolloutTasks },
  "0010-audit-log": { up: auditLog },
  "0011-job-leases": { up: jobLeases },
  "0012-storage": { up: storage },
};

/** Adds the audit log. */
async function auditLog(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("audit_log")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addColumn("request_id", "text", (c) => c.notNull())
    .addColumn("entity", "text", (c) => c.notNull())
    .addColumn("key_id", "text", (c) => c.notNull())
    .addColumn("action", "text", (c) => c.notNull())
    .addColumn("object", "text")
    .addColumn("status", "integer")
    .execute();
}

/** Entity of rows that were created before every row had one, unless their model or artifact has another. */
const FIRST_ENTITY = "local";

/** Adds API keys, and the entity of jobs, files, sessions and stored responses to requests with an idempotency key. */
async function keys(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("api_keys")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("name", "text", (c) => c.notNull())
    .addColumn("entity", "text")
    .addColumn("scopes", "text", (c) => c.notNull())
    .addColumn("model_id", "text")
    .addColumn("hash", "text", (c) => c.notNull().unique())
    .addColumn("previous_hash", "text")
    .addColumn("previous_until", "text")
    .addColumn("created_at", "text", (c) => c.notNull())
    .addColumn("expires_at", "text")
    .addColumn("revoked_at", "text")
    .addColumn("last_used_at", "text")
    .execute();
  await db.schema.createIndex("api_keys_by_previous_hash").on("api_keys").column("previous_hash").execute();
  for (const table of ["jobs", "files", "sessions"])
    await db.schema
      .alterTable(table)
      .addColumn("entity", "text", (c) => c.notNull().defaultTo(FIRST_ENTITY))
      .execute();
  await db.schema.alterTable("sessions").addColumn("model_id", "text").execute();
  await sql`UPDATE jobs SET entity = (SELECT entity FROM models WHERE models.id = jobs.model_id)
    WHERE EXISTS (SELECT 1 FROM models WHERE models.id = jobs.model_id)`.execute(db);
  await sql`UPDATE files SET entity = (SELECT entity FROM artifacts WHERE artifacts.id = files.artifact_id)
    WHERE EXISTS (SELECT 1 FROM artifacts WHERE artifacts.id = files.artifact_id)`.execute(db);
  await modelsOfSessions(db);
  await idempotencyKeysByEntity(db);
}

/** Records the model of each session, and its entity. The name of the model is a path or an id, or the name of a base model. */
async function modelsOfSessions(db: Kysely<unknown>): Promise<void> {
  const { rows } = await sql<{ id: string; model: string }>`SELECT id, model FROM sessions`.execute(db);
  for (const { id, model } of rows) {
    const name = parsePolicyName(model);
    if (name === null) continue;
    const isNamed =
      name.kind === "id" ? sql`id = ${name.id}` : sql`entity = ${name.entity} AND project = ${name.project} AND name = ${name.name}`;
    const found = await sql<{ id: string; entity: string }>`SELECT id, entity FROM models WHERE ${isNamed}`.execute(db);
    for (const { id: modelId, entity } of found.rows)
      await sql`UPDATE sessions SET entity = ${entity}, model_id = ${modelId} WHERE id = ${id}`.execute(db);
  }
}

/** Replaces the table of idempotency keys by one with the entity in its primary key. All rows belong to callers without one. */
async function idempotencyKeysByEntity(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable("idempotency_keys").renameTo("idempotency_keys_without_entity").execute();
  await db.schema.dropIndex("idempotency_keys_by_age").execute();
  await db.schema
    .createTable("idempotency_keys")
    .addColumn("entity", "text", (c) => c.notNull())
    .addColumn("route", "text", (c) => c.notNull())
    .addColumn("key", "text", (c) => c.notNull())
    .addColumn("digest", "text", (c) => c.notNull())
    .addColumn("status", "integer", (c) => c.notNull())
    .addColumn("body", "text", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    // On PostgreSQL the renamed table keeps the name of its constraint, and names of indexes are unique.
    .addPrimaryKeyConstraint("idempotency_keys_of_entity_pk", ["entity", "route", "key"])
    .execute();
  await sql`INSERT INTO idempotency_keys (entity, route, key, digest, status, body, created_at)
    SELECT '', route, key, digest, status, body, created_at FROM idempotency_keys_without_entity`.execute(db);
  await db.schema.dropTable("idempotency_keys_without_entity").execute();
  await db.schema.createIndex("idempotency_keys_by_age").on("idempotency_keys").column("created_at").execute();
}

/** Adds plans of rollouts, their groups, and the tasks that workers lease. */
async function rolloutTasks(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("rollout_plans")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("entity", "text", (c) => c.notNull())
    .addColumn("environment", "text", (c) => c.notNull())
    .addColumn("environment_hash", "text", (c) => c.notNull())
    .addColumn("model_id", "text")
    .addColumn("settings", "text", (c) => c.notNull())
    .addColumn("metadata", "text", (c) => c.notNull())
    .addColumn("group_size", "integer", (c) => c.notNull())
    .addColumn("max_leases", "integer", (c) => c.notNull())
    .addColumn("status", "text", (c) => c.notNull())
    .addColumn("tasks", "integer", (c) => c.notNull())
    .addColumn("finished", "integer", (c) => c.notNull())
    .addColumn("failed", "integer", (c) => c.notNull())
    .addColumn("outcome_bytes", "bigint", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addColumn("expires_at", "text", (c) => c.notNull())
    .execute();
  await db.schema
    .createIndex("rollout_plans_by_environment")
    .on("rollout_plans")
    .columns(["status", "environment", "environment_hash", "created_at", "id"])
    .execute();
  await db.schema.createIndex("rollout_plans_by_creation").on("rollout_plans").columns(["created_at", "id"]).execute();
  await db.schema.createIndex("rollout_plans_by_expiry").on("rollout_plans").column("expires_at").execute();
  await db.schema
    .createTable("rollout_groups")
    .addColumn("plan_id", "text", (c) => c.notNull().references("rollout_plans.id").onDelete("cascade"))
    .addColumn("group_index", "bigint", (c) => c.notNull())
    .addColumn("scenario", "text", (c) => c.notNull())
    .addPrimaryKeyConstraint("rollout_groups_pk", ["plan_id", "group_index"])
    .execute();
  await db.schema
    .createTable("rollout_tasks")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("plan_id", "text", (c) => c.notNull().references("rollout_plans.id").onDelete("cascade"))
    .addColumn("entity", "text", (c) => c.notNull())
    .addColumn("model_id", "text")
    .addColumn("seq", "integer", (c) => c.notNull())
    .addColumn("group_index", "bigint", (c) => c.notNull())
    .addColumn("rollout_index", "integer", (c) => c.notNull())
    .addColumn("state", "text", (c) => c.notNull())
    .addColumn("leases", "integer", (c) => c.notNull())
    .addColumn("worker", "text")
    .addColumn("lease_token", "text")
    .addColumn("lease_until", "text")
    .addColumn("finished_seq", "integer")
    .addColumn("error_message", "text")
    .addColumn("outcome_sha256", "text")
    .addColumn("outcome_bytes", "bigint")
    .addUniqueConstraint("rollout_tasks_place", ["plan_id", "group_index", "rollout_index"])
    .execute();
  await db.schema.createIndex("rollout_tasks_by_state").on("rollout_tasks").columns(["plan_id", "state", "seq"]).execute();
  await db.schema.createIndex("rollout_tasks_by_lease").on("rollout_tasks").columns(["state", "lease_until"]).execute();
  await db.schema.createIndex("rollout_tasks_by_finish").on("rollout_tasks").columns(["plan_id", "finished_seq"]).execute();
  await db.schema.createIndex("rollout_tasks_by_outcome").on("rollout_tasks").column("outcome_sha256").execute();
}

/** Adds the storage outside of the data directory, in a table of at most one row. */
async function storage(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("storage")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("url", "text", (c) => c.notNull())
    .execute();
}

/** Adds leases of running jobs. */
async function jobLeases(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable("jobs")
    .addColumn("lease_token", "integer", (c) => c.notNull().defaultTo(0))
    .execute();
  await db.schema.alterTable("jobs").addColumn("lease_owner", "text").execute();
  await db.schema.alterTable("jobs").addColumn("lease_expires_ms", "bigint").execute();
}

function isPostgres(db: Kysely<unknown>): boolean {
  return db.getExecutor().adapter instanceof PostgresAdapter;
}

/** Adds uploaded files, fine-tuning jobs, further names of checkpoints, and pauses of jobs. */
async function fineTuning(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable("jobs")
    .addColumn("is_paused", "integer", (c) => c.notNull().defaultTo(0))
    .execute();
  await db.schema
    .createTable("files")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("artifact_id", "text", (c) => c.notNull().unique().references("artifacts.id").onDelete("cascade"))
    .addColumn("filename", "text", (c) => c.notNull())
    .addColumn("purpose", "text", (c) => c.notNull())
    .addColumn("size_bytes", "bigint", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addColumn("expires_at", "text")
    .execute();
  await db.schema.createIndex("files_by_creation").on("files").columns(["created_at", "id"]).execute();
  await db.schema
    .createTable("checkpoint_aliases")
    .addColumn("name", "text", (c) => c.primaryKey())
    .addColumn("checkpoint_id", "text", (c) => c.notNull().references("checkpoints.id").onDelete("cascade"))
    .addColumn("job_id", "text", (c) => c.notNull())
    .addColumn("job_step", "integer")
    .execute();
  await db.schema.createIndex("checkpoint_aliases_by_checkpoint").on("checkpoint_aliases").column("checkpoint_id").execute();
  await db.schema.createIndex("checkpoint_aliases_by_job").on("checkpoint_aliases").columns(["job_id", "job_step"]).execute();
  await db.schema
    .createTable("fine_tuning_jobs")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("training_job_id", "text", (c) => c.notNull().unique().references("jobs.id").onDelete("cascade"))
    .addColumn("request", "text", (c) => c.notNull())
    .addColumn("metadata", "text")
    .addColumn("result_file", "text")
    .execute();
}

/** Adds the number of the last write transaction, and its time, in a table of one row. */
async function transactionCount(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("transaction_count")
    .addColumn("count", "integer", (c) => c.notNull())
    .addColumn("committed_at", "text")
    .execute();
  await sql`INSERT INTO transaction_count (count) VALUES (0)`.execute(db);
}

/** Replaces the keys of sessions by their SHA-256 hashes. Clients keep their keys. */
async function sessionKeyHashes(db: Kysely<unknown>): Promise<void> {
  // Overwrites the keys in the file, too. No version has stored keys in Postgres.
  if (!isPostgres(db)) await sql`PRAGMA secure_delete = ON`.execute(db);
  const { rows } = await sql<{ id: string; key: string }>`SELECT id, key FROM sessions`.execute(db);
  for (const { id, key } of rows) {
    const hash = createHash("sha256").update(key).digest("hex");
    await sql`UPDATE sessions SET key = ${hash} WHERE id = ${id}`.execute(db);
  }
}

/** Adds stored responses and sessions. */
async function gateway(db: Kysely<unknown>): Promise<void> {
  await responses(db);
  await sessions(db);
}

/** Adds the stored responses of the Responses API. */
async function responses(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("responses")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("owner", "text", (c) => c.notNull())
    .addColumn("previous_id", "text")
    .addColumn("input", "text", (c) => c.notNull())
    .addColumn("response", "text", (c) => c.notNull())
    .addColumn("size_bytes", "integer", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .execute();
  await db.schema.createIndex("responses_by_age").on("responses").column("created_at").execute();
  // The sum of the sizes is read after each write, from this index alone.
  await db.schema.createIndex("responses_by_size").on("responses").column("size_bytes").execute();
}

/** Adds sessions and their turns. */
async function sessions(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("sessions")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("key", "text", (c) => c.notNull().unique())
    .addColumn("model", "text", (c) => c.notNull())
    .addColumn("sampling_defaults", "text", (c) => c.notNull())
    .addColumn("sampling_overrides", "text", (c) => c.notNull())
    .addColumn("metadata", "text", (c) => c.notNull())
    .addColumn("reward", "double precision")
    .addColumn("metrics", "text", (c) => c.notNull())
    .addColumn("max_requests", "integer", (c) => c.notNull())
    .addColumn("max_tokens", "bigint")
    .addColumn("requests", "integer", (c) => c.notNull())
    .addColumn("tokens", "bigint", (c) => c.notNull())
    .addColumn("last_seq", "integer", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addColumn("open_until", "text", (c) => c.notNull())
    .addColumn("expires_at", "text", (c) => c.notNull())
    .addColumn("finished_at", "text")
    .execute();
  await db.schema.createIndex("sessions_by_creation").on("sessions").columns(["created_at", "id"]).execute();
  await db.schema.createIndex("sessions_by_expiry").on("sessions").column("expires_at").execute();
  await db.schema
    .createTable("session_turns")
    .addColumn("session_id", "text", (c) => c.notNull().references("sessions.id").onDelete("cascade"))
    .addColumn("seq", "integer", (c) => c.notNull())
    .addColumn("dialect", "text", (c) => c.notNull())
    .addColumn("digest", "text", (c) => c.notNull())
    .addColumn("request", "text", (c) => c.notNull())
    .addColumn("completion", "text", (c) => c.notNull())
    .addColumn("is_delivered", "integer", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addPrimaryKeyConstraint("session_turns_pk", ["session_id", "seq"])
    .execute();
}

/** Adds digest columns. Digests of existing files are unknown; digests of a checkpoint are recorded at its first use. */
async function digests(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable("checkpoints").addColumn("digests", "text").execute();
  await db.schema.alterTable("jobs").addColumn("digests", "text").execute();
}

/** Adds lineage and pins. Existing checkpoints have no lineage and are not pinned. */
async function lineage(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable("checkpoints").addColumn("lineage", "text").execute();
  await db.schema
    .alterTable("checkpoints")
    .addColumn("pinned", "integer", (c) => c.notNull().defaultTo(0))
    .execute();
}

/** Creates the tables of the first version. */
async function initial(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("models")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("entity", "text", (c) => c.notNull())
    .addColumn("project", "text", (c) => c.notNull())
    .addColumn("name", "text", (c) => c.notNull())
    .addColumn("base_model", "text", (c) => c.notNull())
    .addColumn("lora", "text")
    .addColumn("seed", "bigint", (c) => c.notNull())
    .addColumn("next_step", "integer", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addUniqueConstraint("models_name", ["entity", "project", "name"])
    .execute();
  await db.schema
    .createTable("checkpoints")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("model_id", "text", (c) => c.notNull().references("models.id").onDelete("cascade"))
    .addColumn("step", "integer", (c) => c.notNull())
    .addColumn("metrics", "text", (c) => c.notNull())
    .addColumn("state_dir", "text")
    .addColumn("optimizer_kind", "text")
    .addColumn("created_at", "text", (c) => c.notNull())
    .addUniqueConstraint("checkpoints_step", ["model_id", "step"])
    .execute();
  // Jobs have no foreign key to models: they outlive their model, so that clients can still read how a job ended.
  await db.schema
    .createTable("jobs")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("seq", "integer", (c) => c.notNull().unique())
    .addColumn("model_id", "text", (c) => c.notNull())
    .addColumn("type", "text", (c) => c.notNull())
    .addColumn("status", "text", (c) => c.notNull())
    .addColumn("config", "text", (c) => c.notNull())
    .addColumn("committed_steps", "integer", (c) => c.notNull())
    .addColumn("progress_dir", "text")
    .addColumn("attempts", "integer", (c) => c.notNull())
    .addColumn("cancel_requested", "integer", (c) => c.notNull())
    .addColumn("error_message", "text")
    .addColumn("step", "integer")
    .addColumn("created_at", "text", (c) => c.notNull())
    .addColumn("training_start", "text")
    .addColumn("training_end", "text")
    .execute();
  await db.schema.createIndex("jobs_by_status").on("jobs").columns(["status", "seq"]).execute();
  await db.schema.createIndex("jobs_by_model").on("jobs").columns(["model_id", "status"]).execute();
  await db.schema
    .createTable("job_events")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("job_id", "text", (c) => c.notNull().references("jobs.id").onDelete("cascade"))
    .addColumn("seq", "integer", (c) => c.notNull())
    .addColumn("event_key", "text", (c) => c.notNull())
    .addColumn("type", "text", (c) => c.notNull())
    .addColumn("data", "text", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addUniqueConstraint("job_events_seq", ["job_id", "seq"])
    .addUniqueConstraint("job_events_key", ["job_id", "event_key"])
    .execute();
  await db.schema
    .createTable("artifacts")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("entity", "text", (c) => c.notNull())
    .addColumn("project", "text", (c) => c.notNull())
    .addColumn("name", "text", (c) => c.notNull())
    .addColumn("version", "integer", (c) => c.notNull())
    .addColumn("state", "text", (c) => c.notNull())
    .addColumn("metadata", "text", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addUniqueConstraint("artifacts_version", ["entity", "project", "name", "version"])
    .execute();
  await db.schema
    .createTable("artifact_files")
    .addColumn("artifact_id", "text", (c) => c.notNull().references("artifacts.id").onDelete("cascade"))
    .addColumn("path", "text", (c) => c.notNull())
    .addColumn("size_bytes", "bigint", (c) => c.notNull())
    .addColumn("sha256", "text", (c) => c.notNull())
    .addPrimaryKeyConstraint("artifact_files_pk", ["artifact_id", "path"])
    .execute();
  await db.schema.createIndex("artifact_files_by_sha256").on("artifact_files").column("sha256").execute();
  await db.schema
    .createTable("idempotency_keys")
    .addColumn("route", "text", (c) => c.notNull())
    .addColumn("key", "text", (c) => c.notNull())
    .addColumn("digest", "text", (c) => c.notNull())
    .addColumn("status", "integer", (c) => c.notNull())
    .addColumn("body", "text", (c) => c.notNull())
    .addColumn("created_at", "text", (c) => c.notNull())
    .addPrimaryKeyConstraint("idempotency_keys_pk", ["route", "key"])
    .execute();
  await db.schema.createIndex("idempotency_keys_by_age").on("idempotency_keys").column("created_at").execute();
}
