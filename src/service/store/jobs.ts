/** Rows of training jobs and their events, and the order of the queue. */
import { randomUUID } from "node:crypto";
import { sql, type ExpressionBuilder } from "kysely";
import { NotFoundError, RateLimitError } from "../../base/errors.ts";
import type { JobQuery } from "../../base/schema/index.ts";
import type { Digests } from "../disk/digests.ts";
import { pageOf, requireCursor, type RowPage, type PageRequest } from "./paging.ts";
import type { JobEventRow, JobRow, ModelRow, Store, Tables } from "./tables.ts";
import { findEntityLimits, requireBytes } from "./entities.ts";
import { unrestricted } from "./visibility.ts";

/** Statuses of unfinished jobs. */
export const LIVE_STATUSES = ["queued", "running"] as const;

/** Returns a job. @throws NotFoundError `E_NOT_FOUND` if the job does not exist. */
export async function getJob(store: Store, id: string): Promise<JobRow> {
  const row = await store.selectFrom("jobs").selectAll().where("id", "=", id.toLowerCase()).executeTakeFirst();
  if (row === undefined) throw new NotFoundError(`Training job '${id}' does not exist`, { param: "training_job_id" });
  return row;
}

/** Returns the unfinished jobs of a model in order of creation. */
export function liveJobs(store: Store, modelId: string): Promise<JobRow[]> {
  return store.selectFrom("jobs").selectAll().where("model_id", "=", modelId).where("status", "in", LIVE_STATUSES).orderBy("seq").execute();
}

/** Builder of expressions in a query on the table of jobs. */
type JobExpressions = ExpressionBuilder<Tables, "jobs">;

/** Selection of {@link nextLiveJob}. */
export interface NextJobQuery {
  /** Ids to skip; later jobs of their models do not wait for them. */
  readonly except: ReadonlySet<string>;
  /** Process that asks, and time of the database; null if no other process runs jobs. */
  readonly lease: { readonly owner: string; readonly nowMs: number } | null;
}

/**
 * Returns the unfinished job to run next. Skips paused jobs, jobs that other processes run, and jobs of a model with an earlier job that is
 * not paused, because each job starts from the checkpoint of the one before.
 *
 * Order: an interrupted job before all others; then by entity, first the one that has waited longest since the start of its last job; then by
 * `priority`, lowest first; then by creation. A process runs one job at a time, so a job that is `running` while its queue looks for work was
 * interrupted.
 */
export function nextLiveJob(store: Store, { except, lease }: NextJobQuery): Promise<JobRow | undefined> {
  let query = store.selectFrom("jobs").selectAll().where("status", "in", LIVE_STATUSES).where("is_paused", "=", 0);
  if (except.size > 0) query = query.where("id", "not in", [...except]);
  if (lease !== null) query = query.where((where) => isFree(where, lease));
  return query
    .where((where) => where.not(where.exists(earlierJobs(where, except))))
    .orderBy((order) => order.case().when("status", "=", "running").then(0).else(1).end())
    .orderBy(lastStartOfEntity)
    .orderBy("priority")
    .orderBy("seq")
    .limit(1)
    .executeTakeFirst();
}

/** Returns the condition that no other process holds the lease of a job. */
function isFree(where: JobExpressions, { owner, nowMs }: NonNullable<NextJobQuery["lease"]>) {
  return where.or([
    where("status", "=", "queued"),
    where("lease_expires_ms", "is", null),
    where("lease_expires_ms", "<", nowMs),
    where("lease_owner", "=", owner),
  ]);
}

/** Selects the earlier jobs of the same model that run or are waiting to run. */
function earlierJobs(where: JobExpressions, except: ReadonlySet<string>) {
  const earlier = where
    .selectFrom("jobs as earlier")
    .select("earlier.id")
    .whereRef("earlier.model_id", "=", "jobs.model_id")
    .whereRef("earlier.seq", "<", "jobs.seq")
    .where("earlier.status", "in", LIVE_STATUSES)
    .where((other) => other.or([other("earlier.status", "=", "running"), other("earlier.is_paused", "=", 0)]));
  return except.size > 0 ? earlier.where("earlier.id", "not in", [...except]) : earlier;
}

/** Returns the start of the last job of a job's entity; empty for an entity without any. */
function lastStartOfEntity(order: JobExpressions) {
  const lastStart = order
    .selectFrom("jobs as started")
    .select((of) => of.fn.max("started.training_start").as("last"))
    .whereRef("started.entity", "=", "jobs.entity");
  return order.fn.coalesce(lastStart, sql.lit(""));
}

/** Milliseconds after which the creation of a job over the limit may be tried again. The time at which another job ends is unknown. */
const JOB_RETRY_MS = 30_000;

/** Returns the number of unfinished jobs of an entity. */
export async function liveJobsOf(store: Store, entity: string): Promise<number> {
  const { count } = await store
    .selectFrom("jobs")
    .select((eb) => eb.fn.countAll<number | string>().as("count"))
    .where("entity", "=", entity)
    .where("status", "in", LIVE_STATUSES)
    .executeTakeFirstOrThrow();
  return Number(count);
}

/** Checks that an entity may have one more unfinished job. @throws RateLimitError `E_RATE_LIMIT` if it may not. */
async function requireJobRoom(store: Store, entity: string): Promise<void> {
  const { queued_jobs: maxJobs = null } = await findEntityLimits(store, entity);
  if (maxJobs === null) return;
  const liveCount = await liveJobsOf(store, entity);
  if (liveCount < maxJobs) return;
  throw new RateLimitError(
    `Expected at most ${maxJobs} unfinished training jobs of the entity '${entity}' (\`queued_jobs\`), got ${liveCount} and another one. Create it when others have ended`,
    { retryAfterMs: JOB_RETRY_MS },
  );
}

/** Job to insert. */
export interface NewJob {
  readonly id: string;
  readonly model: Pick<ModelRow, "id" | "entity">;
  readonly type: JobRow["type"];
  readonly config: unknown;
  /** Priority among the queued jobs of the entity; lower values run first. @default 0 */
  readonly priority?: number | null | undefined;
  /** Trace context of the request that creates the job. @default none */
  readonly traceparent?: string | undefined;
  /** Digests of the files written for the job. */
  readonly digests?: Digests | null | undefined;
}

/** Trace context of the request that creates a job. */
export type JobTrace = Pick<NewJob, "traceparent">;

/**
 * Inserts a job at the end of the queue.
 *
 * @throws RateLimitError `E_RATE_LIMIT`, QuotaError `E_QUOTA` if the entity of the model is at a limit.
 */
export async function insertJob(store: Store, { id, model, type, config, priority, traceparent, digests = null }: NewJob): Promise<void> {
  await requireJobRoom(store, model.entity);
  await requireBytes(store, model.entity, 0);
  const { last } = await unrestricted(store)
    .selectFrom("jobs")
    .select((eb) => eb.fn.max<number | null>("seq").as("last"))
    .executeTakeFirstOrThrow();
  await store
    .insertInto("jobs")
    .values({
      id,
      seq: (last ?? 0) + 1,
      entity: model.entity,
      model_id: model.id,
      type,
      status: "queued",
      config: JSON.stringify(config),
      committed_steps: 0,
      progress_dir: null,
      digests: digests === null ? null : JSON.stringify(digests),
      attempts: 0,
      cancel_requested: 0,
      priority: priority ?? 0,
      traceparent: traceparent ?? null,
      is_paused: 0,
      lease_token: 0,
      lease_owner: null,
      lease_expires_ms: null,
      error_message: null,
      step: null,
      created_at: new Date().toISOString(),
      training_start: null,
      training_end: null,
    })
    .execute();
}

/**
 * Appends an event. An existing event of the job with the same `key` is kept, so that steps recomputed after a crash are not duplicated.
 */
export async function appendEvent(
  store: Store,
  jobId: string,
  { key, type, data }: { readonly key: string; readonly type: JobEventRow["type"]; readonly data: Readonly<Record<string, unknown>> },
): Promise<void> {
  const { last } = await store
    .selectFrom("job_events")
    .select((eb) => eb.fn.max<number | null>("seq").as("last"))
    .where("job_id", "=", jobId)
    .executeTakeFirstOrThrow();
  await store
    .insertInto("job_events")
    .values({
      id: randomUUID(),
      job_id: jobId,
      seq: (last ?? 0) + 1,
      event_key: key,
      type,
      data: JSON.stringify(data),
      created_at: new Date().toISOString(),
    })
    .onConflict((conflict) => conflict.columns(["job_id", "event_key"]).doNothing())
    .execute();
}

/**
 * Returns the metrics of the latest gradient steps of a model's successful RL jobs, newest first. The metrics come from job events,
 * because a checkpoint may be deleted.
 */
export async function recentRlSteps(store: Store, modelId: string, limit: number): Promise<Readonly<Record<string, number>>[]> {
  const rows = await store
    .selectFrom("job_events")
    .innerJoin("jobs", "jobs.id", "job_events.job_id")
    .select("job_events.data")
    .where("jobs.model_id", "=", modelId)
    .where("jobs.type", "=", "rl")
    .where("jobs.status", "=", "succeeded")
    .where("job_events.type", "=", "gradient_step")
    .orderBy("jobs.seq", "desc")
    .orderBy("job_events.seq", "desc")
    .limit(limit)
    .execute();
  return rows.map((row) => JSON.parse(row.data) as Record<string, number>);
}

/**
 * Returns a page of a job's events, oldest first, without notes.
 *
 * @param after - Id of the last event on the previous page.
 * @throws ArgumentError `E_ARGUMENT` if `after` is not an event of the job.
 */
export async function pageOfEvents(store: Store, jobId: string, { after, limit }: PageRequest): Promise<RowPage<JobEventRow>> {
  const listedEvents = store.selectFrom("job_events").selectAll().where("job_id", "=", jobId).where("type", "!=", "note");
  let query = listedEvents.orderBy("seq").limit(limit + 1);
  if (after !== undefined) {
    const cursor = requireCursor(await listedEvents.where("id", "=", after).executeTakeFirst(), after, "an event of this job");
    query = query.where("seq", ">", cursor.seq);
  }
  return pageOf(await query.execute(), limit);
}

/**
 * Returns a page of jobs, newest first.
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not a job.
 */
export async function pageOfJobs(
  store: Store,
  { after, limit, model_id: modelId, status }: PageRequest & Pick<JobQuery, "model_id" | "status">,
): Promise<RowPage<JobRow>> {
  let query = store
    .selectFrom("jobs")
    .selectAll()
    .orderBy("seq", "desc")
    .limit(limit + 1);
  if (modelId !== undefined) query = query.where("model_id", "=", modelId.toLowerCase());
  if (status !== undefined) query = query.where("status", "=", status);
  if (after !== undefined) {
    const cursor = await store.selectFrom("jobs").select("seq").where("id", "=", after.toLowerCase()).executeTakeFirst();
    query = query.where("seq", "<", requireCursor(cursor, after, "a training job").seq);
  }
  return pageOf(await query.execute(), limit);
}

/** Returns the number of jobs by status, including 0. */
export async function countJobs(store: Store): Promise<Record<JobRow["status"], number>> {
  const rows = await store
    .selectFrom("jobs")
    .select((eb) => ["status", eb.fn.countAll<number | string>().as("count")] as const)
    .groupBy("status")
    .execute();
  const counts = { queued: 0, running: 0, succeeded: 0, failed: 0, cancelled: 0 };
  // Some databases return counts as text.
  for (const { status, count } of rows) counts[status] = Number(count);
  return counts;
}
