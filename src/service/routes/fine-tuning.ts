/** The routes of fine-tuning jobs, in the format of the OpenAI API. */
import {
  createFineTuningJobRequest,
  fineTuningJob,
  fineTuningJobCheckpointList,
  fineTuningJobEventList,
  fineTuningJobList,
  fineTuningJobQuery,
  newestFirstQuery,
  type FineTuningJobCheckpointList,
  type FineTuningJobEventList,
  type FineTuningJobList,
} from "../../base/schema/index.ts";
import { ConflictError } from "../../base/errors.ts";
import { requireValid } from "../../base/util/validation.ts";
import { prepareFineTuningJob } from "../fine-tuning/create-job.ts";
import { jobTrace } from "./job-creation.ts";
import { checkpointToWire, eventCursor, eventToWire, jobToWire } from "../fine-tuning/wire.ts";
import { readJson, readQuery, type ServiceRequest } from "../http/body.ts";
import { createOnce } from "../http/idempotency.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { checkpointsOfJob } from "../store/aliases.ts";
import { getFineTuningJob, pageOfFineTuningJobs, pageOfNewestEvents } from "../store/fine-tuning-jobs.ts";
import { pageBody, pageOfList } from "../store/paging.ts";
import type { FineTuningJobRow, JobRow } from "../store/tables.ts";
import type { RouteContext } from "./context.ts";

const PATH = "/v1/fine_tuning/jobs";
const JOB_PATH = `${PATH}/{fine_tuning_job_id}`;
const common = { tag: "Fine-tuning", isExtension: true, validationStatus: 400 } as const;
/** Query parameter for one member of `metadata`. */
const METADATA_PARAMETER = /^metadata\[(.*)\]$/u;

/**
 * Reads the query of a list of jobs. Query parameters `metadata[key]=value` are joined to one object; `metadata` as a text, such as `null`,
 * selects jobs without metadata.
 */
function jobQueryOf(c: ServiceRequest) {
  const metadataMembers: Record<string, string> = {};
  const query: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(c.req.query())) {
    const key = METADATA_PARAMETER.exec(name)?.[1];
    if (key === undefined) query[name] = value;
    else metadataMembers[key] = value;
  }
  if (Object.keys(metadataMembers).length > 0) query["metadata"] = metadataMembers;
  const { metadata, ...page } = requireValid(fineTuningJobQuery, query);
  return { ...page, metadata: typeof metadata === "string" ? null : metadata };
}

/** Converts a conflict of a training job to a conflict of the fine-tuning job that the client named; returns other errors unchanged. */
function toFineTuningError(error: unknown, { id, training_job_id: trainingJobId }: FineTuningJobRow): unknown {
  if (!(error instanceof ConflictError)) return error;
  const message = error.message.replace(`Training job '${trainingJobId}'`, `Fine-tuning job '${id}'`);
  return new ConflictError(message, { cause: error, param: "fine_tuning_job_id" });
}

/** Creates the routes that create, list, read, follow and control fine-tuning jobs. */
export function fineTuningRoutes(context: RouteContext): Route[] {
  const { jobs } = context;
  const storeOf = (c: ServiceRequest) => context.of(c).store;
  const read = (c: ServiceRequest) => getFineTuningJob(storeOf(c), pathParameter(c, "fine_tuning_job_id"));
  /** Changes the state of the training job, and answers with the fine-tuning job. */
  const control = async (c: ServiceRequest, change: (job: JobRow) => Promise<JobRow>) => {
    const { row, job } = await read(c);
    const changed = await change(job).catch((error: unknown) => Promise.reject(toFineTuningError(error, row)));
    return c.json(await jobToWire(storeOf(c), { row, job: changed }));
  };
  const action = { ...common, method: "POST", answer: fineTuningJob } as const;
  return [
    {
      ...common,
      method: "POST",
      path: PATH,
      id: "createFineTuningJob",
      access: ["train"],
      summary: "Fine-tune a model on an uploaded file",
      description: "The lines of the files, and the grader of a reinforcement job, are checked before the request is answered.",
      isIdempotent: true,
      body: createFineTuningJobRequest,
      answer: fineTuningJob,
      errors: [404],
      handle: async (c) => {
        const { value, digest } = await readJson(c, "fineTuning", context.work.bodies);
        const scoped = context.of(c);
        return createOnce(c, scoped.store, { digest, prepare: () => prepareFineTuningJob(scoped, value, jobTrace(c)) });
      },
    },
    {
      ...common,
      method: "GET",
      path: PATH,
      id: "listFineTuningJobs",
      access: ["train", "read"],
      summary: "List fine-tuning jobs, newest first",
      query: fineTuningJobQuery,
      answer: fineTuningJobList,
      handle: async (c) => {
        const { rows, hasMore } = await pageOfFineTuningJobs(storeOf(c), jobQueryOf(c));
        const data = await Promise.all(rows.map((stored) => jobToWire(storeOf(c), stored)));
        return c.json(pageBody(data, hasMore) satisfies FineTuningJobList);
      },
    },
    {
      ...common,
      method: "GET",
      path: JOB_PATH,
      id: "getFineTuningJob",
      access: ["train", "read"],
      summary: "Read a fine-tuning job",
      answer: fineTuningJob,
      handle: async (c) => c.json(await jobToWire(storeOf(c), await read(c))),
    },
    {
      ...action,
      path: `${JOB_PATH}/cancel`,
      id: "cancelFineTuningJob",
      access: ["train"],
      summary: "Cancel a fine-tuning job that is not over",
      description: "Checkpoints that the job has made stay. Cancelling again has no effect.",
      handle: (c) => control(c, (job) => jobs.cancel(job)),
    },
    {
      ...action,
      path: `${JOB_PATH}/pause`,
      id: "pauseFineTuningJob",
      access: ["train"],
      summary: "Stop a fine-tuning job after its current step",
      description: "The progress of the job is committed. A paused job has the state `queued`, also after a restart, until it is resumed.",
      handle: (c) => control(c, (job) => jobs.pause(job)),
    },
    {
      ...action,
      path: `${JOB_PATH}/resume`,
      id: "resumeFineTuningJob",
      access: ["train"],
      summary: "Continue a paused fine-tuning job",
      handle: (c) => control(c, (job) => jobs.resume(job)),
    },
    {
      ...common,
      method: "GET",
      path: `${JOB_PATH}/events`,
      id: "listFineTuningJobEvents",
      access: ["train", "read"],
      summary: "List the events of a fine-tuning job, newest first",
      query: newestFirstQuery,
      answer: fineTuningJobEventList,
      handle: async (c) => {
        const { after, limit } = readQuery(c, newestFirstQuery);
        const stored = await read(c);
        const { rows, hasMore } = await pageOfNewestEvents(storeOf(c), stored.job.id, { after: eventCursor(after), limit });
        const events = rows.map((event) => eventToWire(event, stored));
        return c.json(pageBody(events, hasMore) satisfies FineTuningJobEventList);
      },
    },
    {
      ...common,
      method: "GET",
      path: `${JOB_PATH}/checkpoints`,
      id: "listFineTuningJobCheckpoints",
      access: ["train", "read"],
      summary: "List the checkpoints of a fine-tuning job, newest first",
      query: newestFirstQuery,
      answer: fineTuningJobCheckpointList,
      handle: async (c) => {
        const query = readQuery(c, newestFirstQuery);
        const stored = await read(c);
        const checkpoints = (await checkpointsOfJob(storeOf(c), stored.job.id)).map((alias) => checkpointToWire(alias, stored));
        const { rows, hasMore } = pageOfList(checkpoints, query, "a checkpoint of this job");
        return c.json(pageBody(rows, hasMore) satisfies FineTuningJobCheckpointList);
      },
    },
  ];
}
