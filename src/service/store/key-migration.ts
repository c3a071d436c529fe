/** Part of the migration `0008-team`: API keys and entities. Released, so that its statements must not change. */
import { sql, type Kysely } from "kysely";
import { parsePolicyName } from "../common/names.ts";

/** Entity of rows that were created before every row had one, unless their model or artifact has another. */
const FIRST_ENTITY = "local";

/** Adds API keys with their limits and use, and the entity of jobs, files, sessions and stored responses to requests with an idempotency key. */
export async function keys(db: Kysely<unknown>): Promise<void> {
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
    .addColumn("limits", "text", (c) => c.notNull())
    .execute();
  await db.schema
    .createTable("entities")
    .addColumn("entity", "text", (c) => c.primaryKey())
    .addColumn("limits", "text", (c) => c.notNull())
    .execute();
  await db.schema
    .createTable("usage")
    .addColumn("day", "text", (c) => c.notNull())
    .addColumn("entity", "text", (c) => c.notNull())
    .addColumn("key_id", "text", (c) => c.notNull())
    .addColumn("requests", "bigint", (c) => c.notNull())
    .addColumn("prompt_tokens", "bigint", (c) => c.notNull())
    .addColumn("generated_tokens", "bigint", (c) => c.notNull())
    .addPrimaryKeyConstraint("usage_pk", ["day", "entity", "key_id"])
    .execute();
  await db.schema.createIndex("api_keys_by_previous_hash").on("api_keys").column("previous_hash").execute();
  for (const table of ["jobs", "files", "sessions"])
    await db.schema
      .alterTable(table)
      .addColumn("entity", "text", (c) => c.notNull().defaultTo(FIRST_ENTITY))
      .execute();
  await db.schema.createIndex("jobs_by_entity").on("jobs").columns(["entity", "training_start"]).execute();
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
