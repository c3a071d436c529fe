/** Fine-tuning jobs with their training jobs. */
import { sql } from "kysely";
import { NotFoundError } from "../../base/errors.ts";
import { pageOf, requireCursor, type PageRequest, type RowPage } from "./paging.ts";
import type { FineTuningJobRow, JobEventRow, JobRow, Store } from "./tables.ts";

/** Fine-tuning job with the training job that runs it. */
export interface StoredFineTuningJob {
  readonly row: FineTuningJobRow;
  readonly job: JobRow;
}

/** Number of latest steps from which the duration of a step is estimated. */
const RECENT_STEPS = 21;

/** Returns a fine-tuning job. @throws NotFoundError `E_NOT_FOUND` if it does not exist. */
export async function getFineTuningJob(store: Store, id: string): Promise<StoredFineTuningJob> {
  const row = await findRow(store, id);
  const found = row && (await withJob(store, row));
  if (found === undefined) throw new NotFoundError(`Fine-tuning job '${id.slice(0, 100)}' does not exist`, { param: "fine_tuning_job_id" });
  return found;
}

/** Returns the row of a fine-tuning job. */
function findRow(store: Store, id: string): Promise<FineTuningJobRow | undefined> {
  return store.selectFrom("fine_tuning_jobs").selectAll().where("id", "=", id).executeTakeFirst();
}

/** Reads the training job of a row; undefined if it was deleted. */
async function withJob(store: Store, row: FineTuningJobRow): Promise<StoredFineTuningJob | undefined> {
  const job = await store.selectFrom("jobs").selectAll().where("id", "=", row.training_job_id).executeTakeFirst();
  if (job === undefined) return undefined;
  if (job.status !== "succeeded") return { row, job };
  // The job may have ended since the row was read, and has added its result file.
  const currentRow = await findRow(store, row.id);
  return { row: currentRow ?? row, job };
}

/** Page and filter of {@link pageOfFineTuningJobs}. */
export interface FineTuningFilters extends PageRequest {
  /** Labels that the jobs have; null = only jobs without labels. */
  readonly metadata?: Readonly<Record<string, string>> | null | undefined;
}

/**
 * Returns a page of fine-tuning jobs, newest first.
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not a fine-tuning job.
 */
export async function pageOfFineTuningJobs(
  store: Store,
  { after, limit, metadata }: FineTuningFilters,
): Promise<RowPage<StoredFineTuningJob>> {
  const jobs = store.selectFrom("fine_tuning_jobs").innerJoin("jobs", "jobs.id", "fine_tuning_jobs.training_job_id");
  let query = jobs
    .selectAll("fine_tuning_jobs")
    .select("jobs.seq")
    .orderBy("jobs.seq", "desc")
    .limit(limit + 1);
  if (metadata === null) query = query.where("metadata", "is", null);
  const labels = Object.entries(metadata ?? {});
  for (const label of labels) query = query.where(sql<boolean>`metadata like ${patternOf(label)} escape '\\'`);
  /** Row after which the next read starts; undefined for the newest row. */
  let cursor: { readonly seq: number } | undefined;
  if (after !== undefined) {
    const row = await jobs.select("jobs.seq").where("fine_tuning_jobs.id", "=", after).executeTakeFirst();
    cursor = requireCursor(row, after, "a fine-tuning job");
  }
  const matching: FineTuningJobRow[] = [];
  let isLastRead = false;
  // A row may match a pattern without having its label. Only then are further rows read, until the page is full.
  while (!isLastRead && matching.length <= limit) {
    const candidates = await (cursor === undefined ? query : query.where("jobs.seq", "<", cursor.seq)).execute();
    for (const { seq: _seq, ...row } of candidates) if (hasLabels(row, labels)) matching.push(row);
    isLastRead = candidates.length <= limit;
    cursor = candidates.at(-1);
  }
  const { rows, hasMore } = pageOf(matching, limit);
  const stored = await Promise.all(rows.map((row) => withJob(store, row)));
  return { rows: stored.filter((each) => each !== undefined), hasMore };
}

/** Returns a pattern that every JSON text with this label matches. */
function patternOf([key, value]: readonly [string, string]): string {
  const text = `${JSON.stringify(key)}:${JSON.stringify(value)}`;
  return `%${text.replaceAll(/[\\%_]/gu, String.raw`\$&`)}%`;
}

/** Whether a job has all labels. */
function hasLabels({ metadata }: FineTuningJobRow, labels: readonly (readonly [string, string])[]): boolean {
  if (labels.length === 0) return true;
  const labelsOfJob = new Map(Object.entries(JSON.parse(metadata ?? "{}") as Record<string, string>));
  return labels.every(([key, value]) => labelsOfJob.get(key) === value);
}

/**
 * Returns a page of the events of a training job, newest first, with its notes.
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not an event of the job.
 */
export async function pageOfNewestEvents(store: Store, jobId: string, { after, limit }: PageRequest): Promise<RowPage<JobEventRow>> {
  const allOfJob = store.selectFrom("job_events").selectAll().where("job_id", "=", jobId);
  let query = allOfJob.orderBy("seq", "desc").limit(limit + 1);
  if (after !== undefined) {
    const cursor = requireCursor(await allOfJob.where("id", "=", after).executeTakeFirst(), after, "an event of this job");
    query = query.where("seq", "<", cursor.seq);
  }
  return pageOf(await query.execute(), limit);
}

/** Returns the latest `gradient_step` events of a job, newest first. */
export function recentSteps(store: Store, jobId: string): Promise<JobEventRow[]> {
  return store
    .selectFrom("job_events")
    .selectAll()
    .where("job_id", "=", jobId)
    .where("type", "=", "gradient_step")
    .orderBy("seq", "desc")
    .limit(RECENT_STEPS)
    .execute();
}
