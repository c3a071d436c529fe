/** Creation of fine-tuning jobs: a trainable model, and the training job that trains it. */
import { randomInt, randomUUID } from "node:crypto";
import { ArgumentError, UnsupportedError, WhetstoneError, type WhetstoneErrorOptions } from "../../base/errors.ts";
import type { CreateModelRequest, LoraConfig } from "../../base/schema/index.ts";
import type { Late } from "../../base/util/late.ts";
import type { JobChats } from "../jobs/job-chat.ts";
import { insertModel } from "../checkpoints/insert-model.ts";
import { prepareOrigin, type OriginContext } from "../checkpoints/origin.ts";
import { artifactUrl, parsePolicyName } from "../common/names.ts";
import type { DiskSpace } from "../disk/space.ts";
import type { Creation } from "../http/idempotency.ts";
import type { FineTuningRequest } from "../http/requests.ts";
import { noteEvent } from "../jobs/pause.ts";
import type { JobQueue } from "../jobs/queue.ts";
import { findCheckpoint } from "../models/policies.ts";
import { isAlias } from "../store/aliases.ts";
import { getArtifact, type StoredArtifact } from "../store/artifacts.ts";
import { getFile, newId } from "../store/files.ts";
import { getFineTuningJob } from "../store/fine-tuning-jobs.ts";
import { appendEvent, insertJob, type JobTrace } from "../store/jobs.ts";
import type { PreferenceJobConfig, ReinforcementJobConfig, SftJobConfig } from "../store/job-configs.ts";
import type { JobRow, Store } from "../store/tables.ts";
import { entityFor, requireAllModels } from "../store/visibility.ts";
import type { DataWork } from "../training-data/data-work.ts";
import { type ExampleKind, useExamples } from "../training-data/example-data.ts";
import { planDpo, planSupervised, requestedHyperparameters, resolveBeta, resolveHyperparameters } from "./hyperparameters.ts";
import { planReinforcementJob } from "./reinforcement.ts";
import { jobToWire, type StoredRequest } from "./wire.ts";

/** Project of the models of fine-tuning jobs. */
const PROJECT = "fine-tuning";
/** Rank of the adapter of a job that starts from a base model. */
const ADAPTER_RANK = 16;
/** Largest seed of the OpenAI API. */
const MAX_SEED = 2_147_483_647;

/** Parts of the service that the creation of a job needs. */
export interface CreationContext extends OriginContext {
  readonly jobs: JobQueue;
  readonly space: Pick<DiskSpace, "requireSpace">;
  readonly work: { readonly data: DataWork };
  /** Chat of reinforcement jobs. It is created after the parts of the service that this context has. */
  readonly jobChat: Pick<Late<JobChats>, "value">;
}

/** Weights that a job starts from. */
interface Start {
  readonly baseModel: string;
  /** Checkpoint as the origin of the new model; null for the base model. */
  readonly from: string | null;
  /** Adapter of the new model; null to train all parameters. */
  readonly lora: LoraConfig | null;
}

/** Training and validation data of a job: the stored files that its request names. */
interface JobData {
  readonly training: StoredArtifact;
  readonly validation: StoredArtifact | null;
}

/** Training job that runs a fine-tuning job, as planned by the method of the request. */
export interface MethodPlan {
  readonly jobType: JobRow["type"];
  readonly config: SftJobConfig | PreferenceJobConfig | ReinforcementJobConfig;
  /** Part of the stored request that depends on the method. */
  readonly stored: Pick<StoredRequest, "hyperparameters" | "beta" | "reinforcement" | "steps">;
  /** Messages about the data for the job's events. */
  readonly warnings: readonly string[];
}

/** Inputs of {@link planMethod}. */
export interface MethodPlanInput {
  readonly request: FineTuningRequest;
  readonly seed: number;
  readonly start: Start;
  readonly data: JobData;
  /** Name of the final model. */
  readonly modelName: string;
}

/**
 * Validates a request with its data, and prepares the model and the training job.
 *
 * @throws ArgumentError `E_ARGUMENT` for fields that contradict each other.
 * @throws UnsupportedError `E_UNSUPPORTED` for an integration, or a part of a grader, that the service does not have.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model or file.
 * @throws DataError `E_DATA` naming the line of a file that cannot be trained, and the field.
 */
export async function prepareFineTuningJob(context: CreationContext, request: FineTuningRequest, trace: JobTrace): Promise<Creation> {
  requireSupported(request);
  const { store } = context;
  requireAllModels(store, "the creation of models");
  const entity = entityFor(store, null, "model");
  const data = await readFiles(store, request);
  const start = await findStart(context, request.model);
  await context.space.requireSpace();
  const id = newId("ftjob-");
  const trainingJobId = randomUUID();
  const modelId = randomUUID();
  const shortId = id.slice(-12);
  const suffix = request.suffix ?? "";
  const { baseModel, from, lora } = start;
  const seed = request.seed ?? randomInt(MAX_SEED + 1);
  // The final model has two names: an alias in the format of the OpenAI API, and a qualified name like every trained model.
  const modelName = `ft:${baseModel}:${entity}:${suffix}:${shortId}`;
  const qualifiedName = { entity, project: PROJECT, name: suffix === "" ? shortId : `${suffix}-${shortId}` };
  const plan = await planMethod(context, { request, seed, start, data, modelName });
  const newModel: CreateModelRequest = { project: PROJECT, name: qualifiedName.name, base_model: baseModel, lora, from };
  const origin = await prepareOrigin(context, { id: modelId, seed, request: newModel });
  return {
    async commit(transaction) {
      // The files may have been deleted since they were read.
      await readFiles(transaction, request);
      const model = await insertModel(transaction, { id: modelId, name: qualifiedName, baseModel, origin });
      await insertJob(transaction, { id: trainingJobId, model, type: plan.jobType, config: plan.config, ...trace });
      const columns = requestColumns(request, { seed, ...plan.stored });
      await transaction
        .insertInto("fine_tuning_jobs")
        .values({ id, training_job_id: trainingJobId, ...columns })
        .execute();
      await appendEvent(transaction, trainingJobId, noteEvent(`Created fine-tuning job: ${id}`));
      for (const warning of plan.warnings) await appendEvent(transaction, trainingJobId, noteEvent(warning, {}, "warn"));
      return jobToWire(transaction, await getFineTuningJob(transaction, id));
    },
    afterwards: () => context.jobs.wake(),
    undo: origin.discard,
  };
}

/** Returns the columns of a new job with its request. `resolved` are the settings that the request leaves open. */
function requestColumns(
  { model, training_file, validation_file = null, metadata = null }: FineTuningRequest,
  resolved: Omit<StoredRequest, "model" | "training_file" | "validation_file">,
) {
  const stored: StoredRequest = { model, training_file, validation_file, ...resolved };
  return { request: JSON.stringify(stored), metadata: metadata === null ? null : JSON.stringify(metadata), result_file: null };
}

/** Rejects integrations, and settings of a method other than the chosen one. */
function requireSupported({ method, integrations }: FineTuningRequest): void {
  if ((integrations ?? []).length > 0)
    throw new UnsupportedError(
      "`integrations` are not supported: leave the field out. The job's events and its result file have the metrics",
      {
        param: "integrations",
      },
    );
  const type = method?.type ?? "supervised";
  for (const otherMethod of ["supervised", "dpo", "reinforcement"] as const) {
    if (otherMethod === type || (method?.[otherMethod] ?? null) === null) continue;
    throw new ArgumentError(`Expected settings of the method \`${type}\` alone, got \`method.${otherMethod}\``, {
      param: `method.${otherMethod}`,
    });
  }
}

/**
 * Reads the database rows of the files of a request.
 *
 * @throws NotFoundError `E_NOT_FOUND` for a file that does not exist, was deleted or has expired.
 */
async function readFiles(store: Store, request: FineTuningRequest): Promise<JobData> {
  const validationFile = request.validation_file ?? null;
  return {
    training: await readFile(store, request.training_file, "training_file"),
    validation: validationFile === null ? null : await readFile(store, validationFile, "validation_file"),
  };
}

/** Reads the row of a file. `param` is the request field that names it. */
async function readFile(store: Store, id: string, param: string): Promise<StoredArtifact> {
  const { artifact_id: artifactId, purpose } = await getFile(store, id, param);
  if (purpose !== "fine-tune")
    throw new ArgumentError(`Expected \`${param}\` to be a file with the purpose "fine-tune", got one with "${purpose}"`, { param });
  return getArtifact(store, artifactId);
}

/**
 * Finds the model to start from. A base model gets an adapter of rank 16 if the engine has adapters; a trained model is trained like
 * before.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model.
 */
async function findStart({ store, bases, engine }: CreationContext, name: string): Promise<Start> {
  try {
    if (!bases.ids.includes(name) && (isAlias(name) || parsePolicyName(name) !== null)) {
      const { model, checkpoint } = await findCheckpoint(store, name, { bases: bases.ids, param: "model" });
      const lora = model.lora === null ? null : (JSON.parse(model.lora) as LoraConfig);
      return { baseModel: model.base_model, from: `${model.id}:step${checkpoint.step}`, lora };
    }
    const baseModel = bases.canonical(name);
    await bases.requireUsable(baseModel);
    return { baseModel, from: null, lora: engine.capabilities().lora ? { rank: ADAPTER_RANK } : null };
  } catch (error) {
    throw renameToModelField(error);
  }
}

/** Converts an error about the field `base_model` to one about the field `model`, which names the base model in this request. */
function renameToModelField(error: unknown): unknown {
  if (!WhetstoneError.isInstance(error) || error.param !== "base_model") return error;
  // The classes of these errors, see `base/errors.ts`, have the constructor of their base class.
  const ErrorClass = error.constructor as new (message: string, options: WhetstoneErrorOptions) => WhetstoneError;
  return new ErrorClass(error.message, { cause: error, param: "model", retryable: error.retryable });
}

/** Plans the training job of a request by its method. */
function planMethod(context: CreationContext, input: MethodPlanInput): Promise<MethodPlan> {
  return METHODS[input.request.method?.type ?? "supervised"](context, input);
}

/** Name of a method. */
type Method = NonNullable<NonNullable<FineTuningRequest["method"]>["type"]>;

/** Functions that plan the training job, by method. */
const METHODS: Readonly<Record<Method, (context: CreationContext, input: MethodPlanInput) => Promise<MethodPlan>>> = {
  supervised: planSupervisedJob,
  dpo: planDpoJob,
  reinforcement: planReinforcementJob,
};

/** Checks the data of a supervised request and plans its SFT job. */
async function planSupervisedJob(context: CreationContext, input: MethodPlanInput): Promise<MethodPlan> {
  const requested = requestedHyperparameters(input.request);
  const path = (input.request.hyperparameters ?? null) === null ? "method.supervised.hyperparameters" : "hyperparameters";
  const { facts, artifacts, droppedExamples } = await readExamples(context, input, { name: "sft", assistantTurns: "all" });
  const hyperparameters = resolveHyperparameters(requested, facts.examples);
  const { config, experimental_config, steps, checkpointSteps } = planSupervised({ ...facts, hyperparameters, path });
  return {
    jobType: "sft",
    config: {
      ...artifacts,
      config,
      experimental_config: withSupportedClipping(context, experimental_config),
      ...resultsConfig(input, checkpointSteps),
    },
    stored: { hyperparameters, steps },
    warnings: droppedExamples === 0 ? [] : [`Examples that are longer than the model's context are not trained: ${droppedExamples}`],
  };
}

/** Checks the pairs of a request with the method `dpo` and plans its preference job. */
async function planDpoJob(context: CreationContext, input: MethodPlanInput): Promise<MethodPlan> {
  const { beta: requestedBeta, ...requested } = input.request.method?.dpo?.hyperparameters ?? {};
  if ((input.request.hyperparameters ?? null) !== null)
    throw new ArgumentError("The deprecated `hyperparameters` are for supervised jobs: use `method.dpo.hyperparameters`", {
      param: "hyperparameters",
    });
  const { facts, artifacts, droppedExamples } = await readExamples(context, input, { name: "preference" });
  const hyperparameters = resolveHyperparameters(requested, facts.examples);
  const beta = resolveBeta(requestedBeta);
  const { config, steps, checkpointSteps } = planDpo({ ...facts, hyperparameters, path: "method.dpo.hyperparameters" }, beta);
  return {
    jobType: "preference",
    config: { ...artifacts, config: withSupportedClipping(context, config), ...resultsConfig(input, checkpointSteps) },
    stored: { hyperparameters, beta, steps },
    warnings: droppedExamples === 0 ? [] : [`Pairs that are longer than the model's context are not trained: ${droppedExamples}`],
  };
}

/** Reads and checks the files of a request. Returns the facts that a plan depends on, and the artifacts for the training job. */
async function readExamples({ engine, files, work }: CreationContext, { seed, start, data }: MethodPlanInput, kind: ExampleKind) {
  const base = await engine.describeBase(start.baseModel);
  const read = async (artifact: StoredArtifact, param: string) =>
    useExamples(artifact, { base, files, kind, param }, (source) => work.data.examples(source));
  const { examples, droppedExamples } = await read(data.training, "training_file");
  const { validation } = data;
  if (validation !== null) await read(validation, "validation_file");
  return {
    facts: {
      seed,
      examples: examples.length,
      parameters: base.parameters,
      isAdapter: start.lora !== null,
      validationUrl: validation === null ? null : artifactUrl(validation),
    },
    artifacts: { artifact_id: data.training.id, ...(validation === null ? {} : { validation_artifact_id: validation.id }) },
    droppedExamples,
  };
}

/** Returns the part of a training job's configuration that names its results: the final model, and the steps with a checkpoint. */
function resultsConfig({ modelName }: MethodPlanInput, checkpointSteps: readonly number[]): Required<Pick<SftJobConfig, "fine_tuning">> {
  return { fine_tuning: { model: modelName, checkpoint_steps: checkpointSteps } };
}

/** Returns a configuration that clips gradients only if the engine supports it. */
function withSupportedClipping<C extends object | null>({ engine }: CreationContext, config: C): C {
  return (engine.capabilities().clipsGradients ?? true) ? config : { ...config, max_grad_norm: 0 };
}
