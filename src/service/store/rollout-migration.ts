/** Part of the migration `0008-team`: plans of rollouts. Released, so that its statements must not change. */
import type { Kysely } from "kysely";

/** Adds plans of rollouts, their groups, and the tasks that workers lease. */
export async function rolloutTasks(db: Kysely<unknown>): Promise<void> {
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
