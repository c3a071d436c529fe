/**
 * Creation of training jobs: everything that is checked and stored before a job is accepted. Each function returns the `Creation` that
 * `createOnce` of `http/idempotency.ts` commits.
 */
import { randomUUID } from "node:crypto";
import type { Engine } from "../../engine/port.ts";
import { ConflictError, UnsupportedError } from "../../base/errors.ts";
import type { CreatePreferenceJobRequest, CreateSftJobRequest, RlConfig } from "../../base/schema/index.ts";
import { checkPreferenceConfig } from "../../learner/index.ts";
import type { ServiceContext } from "./context.ts";
import type { Creation } from "../http/idempotency.ts";
import { removeJobFiles } from "../training-data/job-files.ts";
import type { PreferenceJobConfig, RlJobConfig, SftJobConfig } from "../store/job-configs.ts";
import { checkPreferenceData, checkSftData, type RequestedData } from "../jobs/check-examples.ts";
import { referenceCheckpoint } from "../jobs/preference-reference.ts";
import { useRollouts } from "../rollout-tasks/stored-rollouts.ts";
import { parseArtifactUrl, pathOf } from "../common/names.ts";
import type { OpenRlRequest } from "../training-data/data-work.ts";
import { getArtifact, getArtifactByName } from "../store/artifacts.ts";
import { newestCheckpoint } from "../store/checkpoints.ts";
import type { ServiceRequest } from "../http/body.ts";
import { insertJob, type JobTrace, type NewJob } from "../store/jobs.ts";
import { getModel } from "../store/models.ts";
import type { CheckpointRow, ModelRow, Store } from "../store/tables.ts";

/** Returns the checkpoint from which a job would start now: the newest one. @throws ConflictError `E_CONFLICT` if all were deleted. */
async function requireStart(store: Store, model: ModelRow): Promise<CheckpointRow> {
  const newest = await newestCheckpoint(store, model.id);
  if (newest !== undefined) return newest;
  throw new ConflictError(`Model '${pathOf(model)}' has no checkpoint to start from: all were deleted. Create a new model`, {
    param: "model_id",
  });
}

/** Returns the trace context of a request. */
export function jobTrace({ req }: ServiceRequest): JobTrace {
  return { traceparent: req.header("traceparent") };
}

/** Validates an RL request and stores its groups as files of the job. */
export async function prepareRl(context: ServiceContext, { head, accept }: OpenRlRequest, trace: JobTrace): Promise<Creation> {
  const { store, engine, bases, directory, storage, jobs } = context;
  const model = await getModel(store, head.modelId);
  requireEntropyBonus(head.config, engine);
  const config = offeredClipping(head.config, engine, "experimental_config");
  await bases.requireUsable(model.base_model);
  const base = await engine.describeBase(model.base_model);
  const id = randomUUID();
  const undo = () => {
    context.work.data.forget(id);
    return removeJobFiles(storage, id);
  };
  const { warnings, digests } = await useRollouts(context, head.storedRollouts, (rollouts) =>
    accept({ directory, jobId: id, config, base, rollouts }),
  );
  await storage.keep(digests).catch(async (error: unknown) => {
    await undo();
    throw error;
  });
  return {
    async commit(transaction) {
      await requireStart(transaction, await getModel(transaction, model.id));
      await insertJob(transaction, {
        id,
        model,
        type: "rl",
        config: { experimental_config: config, warnings } satisfies RlJobConfig,
        priority: config?.priority,
        ...trace,
        digests,
      });
      return { id };
    },
    afterwards: () => jobs.wake(),
    undo,
  };
}

/** Validates an SFT request, its data included. */
export async function prepareSft(context: ServiceContext, request: CreateSftJobRequest, trace: JobTrace): Promise<Creation> {
  const url = request.experimental_config?.validation_data_url;
  const data = await requestedData(context, request, { url, param: "experimental_config.validation_data_url" });
  const config: SftJobConfig = {
    ...artifactIds(data),
    config: request.config ?? null,
    experimental_config: offeredClipping(request.experimental_config ?? null, context.engine, "experimental_config"),
  };
  await checkSftData({ ...context, data: context.work.data }, data, config);
  return datasetJob(context, data, { type: "sft", config, priority: config.experimental_config?.priority, ...trace });
}

/** Validates a preference request, its data and its reference policy included. */
export async function preparePreferences(context: ServiceContext, request: CreatePreferenceJobRequest, trace: JobTrace): Promise<Creation> {
  const data = await requestedData(context, request, {
    url: request.config?.validation_data_url,
    param: "config.validation_data_url",
  });
  const config: PreferenceJobConfig = {
    ...artifactIds(data),
    config: offeredClipping(request.config ?? null, context.engine, "config"),
  };
  await checkPreferenceData({ ...context, data: context.work.data }, data, config);
  const { reference } = checkPreferenceConfig(config.config);
  const job = { type: "preference", config, priority: config.config?.priority, ...trace } as const;
  return datasetJob(context, data, job, async (transaction, start) => {
    // Throws for a reference policy that does not exist.
    await referenceCheckpoint(transaction, reference, { modelId: data.model.id, start });
  });
}

/** Finds the model and the data of a request, and checks that the model's base can be used. */
async function requestedData(
  { store, bases }: ServiceContext,
  request: Pick<CreateSftJobRequest, "model_id" | "training_data_url">,
  { url, param }: { readonly url: string | null | undefined; readonly param: string },
): Promise<RequestedData> {
  const find = (address: string, field: string) => getArtifactByName(store, parseArtifactUrl(address, field), field);
  const model = await getModel(store, request.model_id);
  const artifact = await find(request.training_data_url, "training_data_url");
  const validation = typeof url === "string" ? { artifact: await find(url, param), param } : null;
  await bases.requireUsable(model.base_model);
  return { model, artifact, validation };
}

/** Returns the members of a stored configuration that name its data. */
function artifactIds({ artifact, validation }: RequestedData): Pick<SftJobConfig, "artifact_id" | "validation_artifact_id"> {
  return { artifact_id: artifact.id, ...(validation === null ? {} : { validation_artifact_id: validation.artifact.id }) };
}

/**
 * Returns the creation of a job over a dataset.
 *
 * @param check - Further checks in the transaction that creates the job; gets the checkpoint that the job would start from now.
 */
function datasetJob(
  { jobs }: ServiceContext,
  { model, artifact, validation }: RequestedData,
  job: ({ readonly type: "sft"; readonly config: SftJobConfig } | { readonly type: "preference"; readonly config: PreferenceJobConfig }) &
    Pick<NewJob, "priority" | "traceparent">,
  check?: (transaction: Store, start: CheckpointRow) => Promise<void>,
): Creation {
  const id = randomUUID();
  return {
    async commit(transaction) {
      const start = await requireStart(transaction, await getModel(transaction, model.id));
      await check?.(transaction, start);
      // The artifacts may have been deleted since they were read.
      await getArtifact(transaction, artifact.id);
      if (validation !== null) await getArtifact(transaction, validation.artifact.id);
      await insertJob(transaction, { id, model, ...job });
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
 * @param path - Object of the request that contains the setting, for the error.
 * @throws UnsupportedError `E_UNSUPPORTED` if clipping is requested from an engine that does not support it.
 */
function offeredClipping<T extends { readonly max_grad_norm?: number | null | undefined }>(
  settings: T | null,
  engine: Engine,
  path: "config" | "experimental_config",
): T | null {
  const { name, clipsGradients = true } = engine.capabilities();
  if (clipsGradients) return settings;
  if ((settings?.max_grad_norm ?? 0) > 0) {
    throw new UnsupportedError(`The engine "${name}" of this service does not clip gradients; leave \`max_grad_norm\` out, or send 0`, {
      param: `${path}.max_grad_norm`,
    });
  }
  return { ...(settings as T), max_grad_norm: 0 };
}
