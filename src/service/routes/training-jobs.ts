import { randomUUID } from "node:crypto";
import { z } from "zod";
import type { Engine } from "../../engine/port.ts";
import { ConflictError, UnsupportedError } from "../../base/errors.ts";
import {
  deleteJobResponse,
  deleteTokensResponse,
  createdJob,
  createRlJobRequest,
  createSftJobRequest,
  listQuery,
  type CreateSftJobRequest,
  jobEventList,
  jobQuery,
  trainedTokens,
  trainingJob,
  trainingJobList,
  type JobEvent,
  type JobEventList,
  type RlConfig,
  type TrainingJob,
  type TrainingJobList,
} from "../../base/schema/index.ts";
import { readBytes, readJson, readQuery, type ServiceRequest } from "../http/body.ts";
import type { ServiceContext } from "./context.ts";
import { create, type Creation } from "../http/idempotency.ts";
import { removeJobFiles } from "../training-data/job-files.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { readTokenReport } from "../jobs/token-report.ts";
import type { RlJobConfig, SftJobConfig } from "../store/job-configs.ts";
import { VALIDATION_PARAM } from "../training-data/sft-data.ts";
import { checkSftData } from "../jobs/check-sft.ts";
import { parseArtifactUrl, pathOf } from "../common/names.ts";
import type { OpenRlRequest } from "../training-data/data-work.ts";
import { getArtifact, getArtifactByName } from "../store/artifacts.ts";
import { newestCheckpoint } from "../store/checkpoints.ts";
import { deleteJob, deleteTokens } from "../history/deletion.ts";
import { getJob, insertJob, pageOfEvents, pageOfJobs } from "../store/jobs.ts";
import { getModel } from "../store/models.ts";
import { pageBody } from "../store/paging.ts";
import type { JobEventRow, JobRow, ModelRow, Store } from "../store/tables.ts";

const PATH = "/v1/preview/training-jobs";
const tag = "Training jobs";
const extension = { tag, isExtension: true } as const;

const eventQuery = listQuery.omit({ order: true }).extend({
  /** Extension: max seconds to wait for an event (long polling), 0 to 30. */
  wait: z.coerce.number().min(0).max(30).default(0),
});

function toWire(row: JobRow): TrainingJob {
  const { id, model_id, type, status, created_at, training_start, training_end, error_message, step } = row;
  const isPaused = row.is_paused === 1 && (status === "queued" || status === "running");
  return {
    id,
    model_id,
    type,
    status,
    ...(isPaused ? { paused: true } : {}),
    created_at,
    training_start,
    training_end,
    error_message,
    step,
  };
}

function eventToWire(row: JobEventRow): JobEvent {
  // Pages of events have no notes.
  return { id: row.id, type: row.type as JobEvent["type"], data: JSON.parse(row.data) as Record<string, unknown> };
}

/** Creates the routes that create, read, follow and cancel training jobs. */
export function trainingJobRoutes(context: ServiceContext): Route[] {
  const { store, jobs, space } = context;
  const idOf = (c: ServiceRequest) => pathParameter(c, "job_id");
  const creation = { method: "POST", tag, isIdempotent: true, answer: createdJob, errors: [404, 409] } as const;
  return [
    {
      ...creation,
      path: PATH,
      id: "createRlJob",
      summary: "Train a model on trajectories: one step",
      body: createRlJobRequest,
      handle: async (c) => {
        const bytes = await readBytes(c);
        const sizeBytes = bytes.length;
        const accept = (request: OpenRlRequest) => {
          const { digest } = request.head;
          return create(c, store, { digest, prepare: () => space.requireSpace(sizeBytes).then(() => prepareRl(context, request)) });
        };
        return context.work.data.withRlRequest(bytes, accept, c.req.raw.signal);
      },
    },
    {
      ...creation,
      path: "/v1/preview/sft-training-jobs",
      id: "createSftJob",
      summary: "Train a model on an uploaded dataset",
      body: createSftJobRequest,
      handle: async (c) => {
        const { value, digest } = await readJson(c, "sft", context.work.bodies);
        return create(c, store, { digest, prepare: () => space.requireSpace().then(() => prepareSft(context, value)) });
      },
    },
    {
      ...extension,
      method: "GET",
      path: PATH,
      id: "listJobs",
      summary: "List jobs, newest first",
      query: jobQuery,
      answer: trainingJobList,
      handle: async (c) => {
        const { rows, hasMore } = await pageOfJobs(store, readQuery(c, jobQuery));
        return c.json(pageBody(rows.map(toWire), hasMore) satisfies TrainingJobList);
      },
    },
    {
      method: "GET",
      path: `${PATH}/{job_id}`,
      id: "getJob",
      tag,
      summary: "Read a job",
      answer: trainingJob,
      handle: async (c) => c.json(toWire(await getJob(store, idOf(c)))),
    },
    {
      ...extension,
      method: "POST",
      path: `${PATH}/{job_id}/cancel`,
      id: "cancelJob",
      summary: "Cancel a job that is not over",
      description: "A cancelled job leaves no checkpoint. Cancelling again has no effect; a job that succeeded or failed answers 409.",
      answer: trainingJob,
      errors: [409],
      handle: async (c) => c.json(toWire(await jobs.cancel(idOf(c)))),
    },
    {
      ...extension,
      method: "GET",
      path: `${PATH}/{job_id}/tokens`,
      id: "getJobTokens",
      summary: "Read the token report of an RL job",
      description: "For jobs that were created with `token_report: true` and are over.",
      answer: trainedTokens,
      handle: async (c) => {
        // Checks the job first, so that an unknown id gets its own error and never becomes a file name.
        const job = await getJob(store, idOf(c));
        const report = await readTokenReport(context.directory, context.files, job);
        return c.body(new Uint8Array(report), 200, { "content-type": "application/json" });
      },
    },
    {
      ...extension,
      method: "DELETE",
      path: `${PATH}/{job_id}`,
      id: "deleteJob",
      summary: "Delete a job that is over, with its events and its token report",
      description: "The checkpoint of the job stays. A job that is queued or running answers 409.",
      answer: deleteJobResponse,
      errors: [409],
      handle: async (c) => c.json(await deleteJob(context, idOf(c))),
    },
    {
      ...extension,
      method: "DELETE",
      path: `${PATH}/{job_id}/tokens`,
      id: "deleteJobTokens",
      summary: "Delete the token report of a job that is over",
      answer: deleteTokensResponse,
      errors: [409],
      handle: async (c) => c.json(await deleteTokens(context, idOf(c))),
    },
    {
      ...extension,
      method: "GET",
      path: `${PATH}/{job_id}/events`,
      id: "listJobEvents",
      summary: "List the events of a job, oldest first",
      query: eventQuery,
      answer: jobEventList,
      handle: async (c) => {
        const query = readQuery(c, eventQuery);
        return c.json(await eventsOf(context, idOf(c), { ...query, signal: c.req.raw.signal }));
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
    const { revision } = jobs.changes;
    // Reads the status before the events, so that an event committed with a final status is included below.
    const job = await getJob(store, id);
    const { rows, hasMore } = await pageOfEvents(store, job.id, { after, limit });
    const isLive = job.status === "queued" || job.status === "running";
    const leftMs = endsAtMs - performance.now();
    if (rows.length > 0 || !isLive || leftMs <= 0 || signal.aborted || jobs.isClosing) {
      return pageBody(rows.map(eventToWire), hasMore);
    }
    await jobs.changes.wait(revision, { timeoutMs: leftMs, signal });
  }
}

/** Checks that a model has a checkpoint. @throws ConflictError `E_CONFLICT` if all checkpoints were deleted. */
async function requireStart(store: Store, model: ModelRow): Promise<void> {
  if ((await newestCheckpoint(store, model.id)) !== undefined) return;
  throw new ConflictError(`Model '${pathOf(model)}' has no checkpoint to start from: all were deleted. Create a new model`, {
    param: "model_id",
  });
}

/** Validates an RL request and stores its groups. */
async function prepareRl(context: ServiceContext, { head, accept }: OpenRlRequest): Promise<Creation> {
  const { store, engine, bases, directory, jobs } = context;
  const model = await getModel(store, head.modelId);
  requireEntropyBonus(head.config, engine);
  const config = offeredClipping(head.config, engine);
  await bases.requireUsable(model.base_model);
  const base = await engine.describeBase(model.base_model);
  const id = randomUUID();
  const { warnings, digests } = await accept({ directory, jobId: id, config, base });
  return {
    async commit(transaction) {
      await requireStart(transaction, await getModel(transaction, model.id));
      await insertJob(transaction, {
        id,
        modelId: model.id,
        type: "rl",
        config: { experimental_config: config, warnings } satisfies RlJobConfig,
        digests,
      });
      return { id };
    },
    afterwards: () => jobs.wake(),
    undo: () => {
      context.work.data.forget(id);
      return removeJobFiles(directory, id);
    },
  };
}

/** Validates an SFT request, its data included. */
async function prepareSft(context: ServiceContext, request: CreateSftJobRequest): Promise<Creation> {
  const { store, jobs } = context;
  const model = await getModel(store, request.model_id);
  const artifact = await getArtifactByName(store, parseArtifactUrl(request.training_data_url, "training_data_url"), "training_data_url");
  const url = request.experimental_config?.validation_data_url ?? null;
  const validation = url === null ? null : await getArtifactByName(store, parseArtifactUrl(url, VALIDATION_PARAM), VALIDATION_PARAM);
  const config: SftJobConfig = {
    artifact_id: artifact.id,
    config: request.config ?? null,
    experimental_config: offeredClipping(request.experimental_config ?? null, context.engine),
    ...(validation === null ? {} : { validation_artifact_id: validation.id }),
  };
  await context.bases.requireUsable(model.base_model);
  await checkSftData({ ...context, data: context.work.data }, { model, artifact, validation, config });
  const id = randomUUID();
  return {
    async commit(transaction) {
      await requireStart(transaction, await getModel(transaction, model.id));
      // The artifacts may have been deleted since they were read.
      for (const { id: artifactId } of validation === null ? [artifact] : [artifact, validation])
        await getArtifact(transaction, artifactId);
      await insertJob(transaction, { id, modelId: model.id, type: "sft", config });
      return { id };
    },
    afterwards: () => jobs.wake(),
  };
}

/** Checks that the engine supports an entropy bonus if the job has one. @throws UnsupportedError `E_UNSUPPORTED` if it does not. */
function requireEntropyBonus(config: RlConfig | null, engine: Engine): void {
  const coefficient = config?.entropy_coef ?? 0;
  const { name, entropyBonus = false } = engine.capabilities();
  if (coefficient === 0 || entropyBonus) return;
  throw new UnsupportedError(
    `The engine "${name}" of this service has no entropy bonus; leave \`entropy_coef\` out, or send 0 instead of ${coefficient}`,
    { param: "experimental_config.entropy_coef" },
  );
}

/**
 * Adapts a job's settings to the engine: if the engine does not clip gradients, an unset `max_grad_norm` becomes 0 (off).
 *
 * @throws UnsupportedError `E_UNSUPPORTED` if clipping is requested from an engine that does not support it.
 */
function offeredClipping<T extends { readonly max_grad_norm?: number | null | undefined }>(settings: T | null, engine: Engine): T | null {
  const { name, clipsGradients = true } = engine.capabilities();
  if (clipsGradients) return settings;
  if ((settings?.max_grad_norm ?? 0) > 0) {
    throw new UnsupportedError(`The engine "${name}" of this service does not clip gradients; leave \`max_grad_norm\` out, or send 0`, {
      param: "experimental_config.max_grad_norm",
    });
  }
  return { ...(settings as T), max_grad_norm: 0 };
}
