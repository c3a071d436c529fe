/** The routes of training jobs. `job-creation.ts` validates new jobs; the job queue runs them. */
import { z } from "zod";
import {
  deleteJobResponse,
  deleteTokensResponse,
  createdJob,
  createPreferenceJobRequest,
  createRlJobRequest,
  createSftJobRequest,
  listQuery,
  jobEventList,
  jobQuery,
  trainedTokens,
  trainingJob,
  trainingJobList,
  type JobEvent,
  type JobEventList,
  type TrainingJob,
  type TrainingJobList,
} from "../../base/schema/index.ts";
import { readBytes, readJson, readQuery, type ServiceRequest } from "../http/body.ts";
import type { RouteContext, ServiceContext } from "./context.ts";
import { createOnce } from "../http/idempotency.ts";
import { jobTrace, preparePreferences, prepareRl, prepareSft } from "./job-creation.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { readTokenReport } from "../jobs/token-report.ts";
import type { OpenRlRequest } from "../training-data/data-work.ts";
import { deleteJob, deleteTokens } from "../history/deletion.ts";
import { getJob, pageOfEvents, pageOfJobs } from "../store/jobs.ts";
import { pageBody } from "../store/paging.ts";
import type { JobEventRow, JobRow } from "../store/tables.ts";

const PATH = "/v1/preview/training-jobs";
const tag = "Training jobs";
const extension = { tag, isExtension: true } as const;

/** Query of the events of a job: always oldest first. */
const eventQuery = listQuery.omit({ order: true }).extend({
  /** Extension: max seconds to wait for an event (long polling), 0 to 30. */
  wait: z.coerce.number().min(0).max(30).default(0),
});

/** Converts a job to its form in answers. */
function toWire(row: JobRow): TrainingJob {
  const { id, model_id, type, status, priority, created_at, training_start, training_end, error_message, step } = row;
  const isPaused = row.is_paused === 1 && (status === "queued" || status === "running");
  return {
    id,
    model_id,
    type,
    status,
    priority,
    ...(isPaused ? { paused: true } : {}),
    created_at,
    training_start,
    training_end,
    error_message,
    step,
  };
}

/** Converts an event to its form in answers. */
function eventToWire(row: JobEventRow): JobEvent {
  // Rows of other types (notes of the service) are not part of `pageOfEvents`.
  return { id: row.id, type: row.type as JobEvent["type"], data: JSON.parse(row.data) as Record<string, unknown> };
}

/** Creates the routes that create, read, follow and cancel training jobs. */
export function trainingJobRoutes(context: RouteContext): Route[] {
  const { jobs, space } = context;
  const idOf = (c: ServiceRequest) => pathParameter(c, "job_id");
  const find = (c: ServiceRequest): Promise<JobRow> => getJob(context.of(c).store, idOf(c));
  const creation = { method: "POST", tag, isIdempotent: true, answer: createdJob, errors: [404, 409] } as const;
  return [
    {
      ...creation,
      path: PATH,
      id: "createRlJob",
      access: ["train"],
      summary: "Train a model on trajectories: one step",
      body: createRlJobRequest,
      handle: async (c) => {
        const bytes = await readBytes(c);
        const sizeBytes = bytes.length;
        const accept = (request: OpenRlRequest) => {
          const { digest } = request.head;
          const scoped = context.of(c);
          return createOnce(c, scoped.store, {
            digest,
            prepare: () => space.requireSpace(sizeBytes).then(() => prepareRl(scoped, request, jobTrace(c))),
          });
        };
        return context.work.data.withRlRequest(bytes, accept, c.req.raw.signal);
      },
    },
    {
      ...creation,
      path: "/v1/preview/sft-training-jobs",
      id: "createSftJob",
      access: ["train"],
      summary: "Train a model on an uploaded dataset",
      body: createSftJobRequest,
      handle: async (c) => {
        const { value, digest } = await readJson(c, "sft", context.work.bodies);
        const scoped = context.of(c);
        return createOnce(c, scoped.store, {
          digest,
          prepare: () => space.requireSpace().then(() => prepareSft(scoped, value, jobTrace(c))),
        });
      },
    },
    {
      ...creation,
      isExtension: true,
      path: "/v1/preview/preference-training-jobs",
      id: "createPreferenceJob",
      access: ["train"],
      summary: "Train a model on an uploaded dataset of preference pairs",
      body: createPreferenceJobRequest,
      handle: async (c) => {
        const { value, digest } = await readJson(c, "preference", context.work.bodies);
        const scoped = context.of(c);
        return createOnce(c, scoped.store, {
          digest,
          prepare: () => space.requireSpace().then(() => preparePreferences(scoped, value, jobTrace(c))),
        });
      },
    },
    {
      ...extension,
      method: "GET",
      path: PATH,
      id: "listJobs",
      access: ["train", "read"],
      summary: "List jobs, newest first",
      query: jobQuery,
      answer: trainingJobList,
      handle: async (c) => {
        const { rows, hasMore } = await pageOfJobs(context.of(c).store, readQuery(c, jobQuery));
        return c.json(pageBody(rows.map(toWire), hasMore) satisfies TrainingJobList);
      },
    },
    {
      method: "GET",
      path: `${PATH}/{job_id}`,
      id: "getJob",
      access: ["train", "read"],
      tag,
      summary: "Read a job",
      answer: trainingJob,
      handle: async (c) => c.json(toWire(await find(c))),
    },
    {
      ...extension,
      method: "POST",
      path: `${PATH}/{job_id}/cancel`,
      id: "cancelJob",
      access: ["train"],
      summary: "Cancel a job that is not over",
      description: "A cancelled job leaves no checkpoint. Cancelling again has no effect; a job that succeeded or failed answers 409.",
      answer: trainingJob,
      errors: [409],
      handle: async (c) => c.json(toWire(await jobs.cancel(await find(c)))),
    },
    {
      ...extension,
      method: "GET",
      path: `${PATH}/{job_id}/tokens`,
      id: "getJobTokens",
      access: ["train", "read"],
      summary: "Read the token report of an RL job",
      description: "For jobs that were created with `token_report: true` and are over.",
      answer: trainedTokens,
      handle: async (c) => {
        // Checks the job first, so that an unknown id gets its own error and never becomes a file name.
        const job = await find(c);
        const report = await readTokenReport(context.directory, context.files, job);
        return c.body(new Uint8Array(report), 200, { "content-type": "application/json" });
      },
    },
    {
      ...extension,
      method: "DELETE",
      path: `${PATH}/{job_id}`,
      id: "deleteJob",
      access: ["train"],
      summary: "Delete a job that is over, with its events and its token report",
      description: "The checkpoint of the job stays. A job that is queued or running answers 409.",
      answer: deleteJobResponse,
      errors: [409],
      handle: async (c) => c.json(await deleteJob(context.of(c), idOf(c))),
    },
    {
      ...extension,
      method: "DELETE",
      path: `${PATH}/{job_id}/tokens`,
      id: "deleteJobTokens",
      access: ["train"],
      summary: "Delete the token report of a job that is over",
      answer: deleteTokensResponse,
      errors: [409],
      handle: async (c) => c.json(await deleteTokens(context.of(c), idOf(c))),
    },
    {
      ...extension,
      method: "GET",
      path: `${PATH}/{job_id}/events`,
      id: "listJobEvents",
      access: ["train", "read"],
      summary: "List the events of a job, oldest first",
      query: eventQuery,
      answer: jobEventList,
      handle: async (c) => {
        const query = readQuery(c, eventQuery);
        return c.json(await eventsOf(context.of(c), idOf(c), { ...query, signal: c.req.raw.signal }));
      },
    },
  ];
}

/** Returns a page of events. If it would be empty, waits up to `wait` seconds for an event or the end of the job. */
async function eventsOf(
  { store, jobs }: ServiceContext,
  id: string,
  { after, limit, wait, signal }: z.output<typeof eventQuery> & { readonly signal: AbortSignal },
): Promise<JobEventList> {
  const endsAtMs = performance.now() + wait * 1000;
  for (;;) {
    // Read before the rows, so that a change after the queries ends the wait at once.
    const { revision } = jobs.changes;
    // Reads the status before the events, so that an event committed with a final status is included below.
    const job = await getJob(store, id);
    const { rows, hasMore } = await pageOfEvents(store, job.id, { after, limit });
    const isLive = job.status === "queued" || job.status === "running";
    const remainingMs = endsAtMs - performance.now();
    if (rows.length > 0 || !isLive || remainingMs <= 0 || signal.aborted || jobs.isClosing) {
      return pageBody(rows.map(eventToWire), hasMore);
    }
    await jobs.changes.wait(revision, { timeoutMs: remainingMs, signal });
  }
}
