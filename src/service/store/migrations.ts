/** Migrations of the database, for SQLite and Postgres. `tables.ts` describes the tables after all migrations. */
import { createHash } from "node:crypto";
import { PostgresAdapter, sql, type Kysely, type Migration } from "kysely";
import { keys } from "./key-migration.ts";
import { rolloutTasks } from "./rollout-migration.ts";

/** Migrations by name, oldest first. A released migration is never edited. */
export const MIGRATIONS: Record<string, Migration> = {
  "0001-initial": { up: initial },
  "0002-lineage": { up: lineage },
  "0003-digests": { up: digests },
  "0004-gateway": { up: gateway },
  "0005-session-key-hashes": { up: sessionKeyHashes },
  "0006-transaction-count": { up: transactionCount },
  "0007-fine-tuning": { up: fineTuning },
  "0008-team": { up: team },
};

/** Adds API keys and entities, plans of rollouts, the audit log, columns of jobs, and the storage. */
async function team(db: Kysely<unknown>): Promise<void> {
  for (const add of [keys, rolloutTasks, auditLog, jobLeases, storage]) await add(db);
}

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

/** Adds the storage outside of the data directory, in a table of at most one row. */
async function storage(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable("storage")
    .addColumn("id", "text", (c) => c.primaryKey())
    .addColumn("url", "text", (c) => c.notNull())
    .execute();
}

/** Adds leases, priorities and trace contexts of jobs. */
async function jobLeases(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .alterTable("jobs")
    .addColumn("priority", "integer", (c) => c.notNull().defaultTo(0))
    .execute();
  await db.schema
    .alterTable("jobs")
    .addColumn("lease_token", "integer", (c) => c.notNull().defaultTo(0))
    .execute();
  await db.schema.alterTable("jobs").addColumn("traceparent", "text").execute();
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
