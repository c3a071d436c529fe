/**
 * The one place where snake_case becomes camelCase and back. Free-form maps (metrics, metadata, event data) keep their
 * keys as they are; chat bodies are not converted at all.
 */
import type { z } from "zod";
import { ArgumentError } from "../errors.ts";
import type {
  ArtifactVersion as WireArtifactVersion,
  Checkpoint,
  CreateModelRequest,
  DeleteCheckpointsResponse,
  DeleteModelResponse,
  JobEvent as WireJobEvent,
  LoraConfig,
  Model as WireModel,
  RlConfig,
  ServedModel as WireServedModel,
  SftConfig,
  SftExperimentalConfig,
  TrainingJob as WireTrainingJob,
} from "../schema/index.ts";
import { ProtocolError } from "./errors.ts";

/** `learning_rate` → `learningRate`. */
export type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelCase<Tail>>}` : S;
/** The top-level keys of `T` in camelCase. */
export type CamelKeys<T> = { readonly [K in keyof T as K extends string ? CamelCase<K> : never]: T[K] };

/** A trainable model's facts. */
export interface ModelInfo {
  readonly id: string;
  readonly entity: string;
  readonly project: string;
  readonly name: string;
  readonly baseModel: string;
  /** The experiment-tracking run; null if the service has none. */
  readonly runId: string | null;
  /** null = every parameter is trained. */
  readonly lora: LoraConfig | null;
}

/** What creates a model. */
export interface CreateModelOptions {
  /** Project where the model is stored. */
  readonly project: string;
  /** Unique within the project. */
  readonly name: string;
  /** A base model the service knows. */
  readonly baseModel: string;
  /** @default the key's entity */
  readonly entity?: string | undefined;
  /** Return the model of this name if there is one, whatever its base model and adapter, instead of a conflict. @default false */
  readonly returnExisting?: boolean | undefined;
  /** Extension: train low-rank adapters. @default every parameter, or with `from` what that has */
  readonly lora?: LoraConfig | undefined;
  /**
   * Extension: what to start from instead of the base. A checkpoint (`entity/project/name:stepN`, without a step the newest; what
   * `ModelPolicy.id` says), or an artifact with an adapter in PEFT's layout (`artifact:///entity/project/name:vN`). @default the base
   */
  readonly from?: string | undefined;
  /** Extension: start with the optimizer state of the checkpoint in `from`, too. @default false */
  readonly keepOptimizer?: boolean | undefined;
}

/** What was deleted with a model. */
export interface DeletedModel {
  readonly modelId: string;
  readonly deletedCheckpoints: number;
  /** Whether a run was deleted with it; always false where models have none, as in this package's service. */
  readonly deletedRun: boolean;
}

/** What was deleted of the checkpoints asked for. */
export interface DeletedCheckpoints {
  readonly deletedCount: number;
  /** Steps that matched no checkpoint. */
  readonly notFoundSteps: readonly number[];
}

/** One entry of the list of served models. */
export interface ServedModel {
  readonly id: string;
  /** Seconds since 1970; 0 where the service does not say. */
  readonly created: number;
  readonly ownedBy: string;
  /** Name of a trainable model's newest checkpoint; null if the service does not list it. */
  readonly root: string | null;
  /** Base model of a trainable model; null for a base model, and if the service does not list it. */
  readonly parent: string | null;
  /** Context length in tokens; null if unknown. */
  readonly maxModelLen: number | null;
}

/** A training job. A service with nothing but the interface fills in `id` alone; the rest is then null. */
export interface TrainingJobInfo {
  readonly id: string;
  readonly modelId: string | null;
  readonly type: "rl" | "sft" | null;
  readonly status: "queued" | "running" | "succeeded" | "failed" | "cancelled" | null;
  readonly createdAt: string | null;
  readonly trainingStart: string | null;
  readonly trainingEnd: string | null;
  readonly errorMessage: string | null;
  /** The checkpoint this job made. */
  readonly step: number | null;
}

/** A file of an artifact version. */
export interface ArtifactFileInfo {
  readonly path: string;
  readonly sizeBytes: number;
  /** Lower-case hexadecimal. */
  readonly sha256: string;
}

/** A version of an artifact: `open` takes files, `committed` is immutable and usable. */
export interface ArtifactVersion {
  readonly id: string;
  readonly entity: string;
  readonly project: string;
  readonly name: string;
  readonly version: number;
  readonly state: "open" | "committed";
  /** `artifact:///entity/project/name:vN`. */
  readonly url: string;
  readonly files: readonly ArtifactFileInfo[];
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly createdAt: string;
}

/** What happens to a job, oldest first. `metrics` keep the service's names. */
export type JobEvent =
  | {
      readonly type: "training-started";
      readonly id: string | null;
      /** Gradient steps to expect; null if the service did not say. */
      readonly gradientSteps: number | null;
    }
  | { readonly type: "gradient-step"; readonly id: string | null; readonly metrics: Readonly<Record<string, number>> }
  | {
      /** Extension: the numbers of the step before it give cause for worry; `code` says which. */
      readonly type: "warning";
      readonly id: string | null;
      readonly code: string;
      readonly message: string;
      readonly value: number | null;
      readonly threshold: number | null;
    }
  | {
      readonly type: "training-ended";
      readonly id: string | null;
      /** The checkpoint this job made; null if the service did not say. */
      readonly step: number | null;
      readonly metrics: Readonly<Record<string, number>>;
    }
  | { readonly type: "training-failed"; readonly id: string | null; readonly message: string }
  | { readonly type: "training-cancelled"; readonly id: string | null };

/** Settings of an RL step: the interface's `experimental_config` in camelCase. Absent ones have the service's defaults. */
export type RlOptions = Partial<CamelKeys<RlConfig>>;
/** Settings of an SFT job: `config` and `experimental_config` in camelCase. */
export type SftOptions = Partial<CamelKeys<SftConfig> & CamelKeys<SftExperimentalConfig>>;

export function modelFromWire(model: WireModel): ModelInfo {
  const { id, entity, project, name, base_model: baseModel, run_id: runId, lora } = model;
  return { id, entity, project, name, baseModel, runId, lora: lora ?? null };
}

export function createModelToWire(options: CreateModelOptions): CreateModelRequest {
  const { project, name, baseModel, entity, returnExisting, lora, from, keepOptimizer } = options;
  // Only what was given: a service without the extension must not see a field it does not know.
  return {
    project,
    name,
    base_model: baseModel,
    ...(entity === undefined ? {} : { entity }),
    ...(returnExisting === undefined ? {} : { return_existing: returnExisting }),
    ...(lora === undefined ? {} : { lora }),
    ...(from === undefined ? {} : { from }),
    ...(keepOptimizer === undefined ? {} : { keep_optimizer: keepOptimizer }),
  };
}

export function deletedModelFromWire(deleted: DeleteModelResponse): DeletedModel {
  return { modelId: deleted.model_id, deletedCheckpoints: deleted.deleted_checkpoints, deletedRun: deleted.deleted_run };
}

export function deletedCheckpointsFromWire(deleted: DeleteCheckpointsResponse): DeletedCheckpoints {
  return { deletedCount: deleted.deleted_count, notFoundSteps: deleted.not_found_steps };
}

export function servedModelFromWire({ id, created, owned_by: ownedBy, root, parent, max_model_len }: WireServedModel): ServedModel {
  return { id, created, ownedBy, root: root ?? null, parent: parent ?? null, maxModelLen: max_model_len ?? null };
}

export function trainingJobFromWire(job: WireTrainingJob): TrainingJobInfo {
  return {
    id: job.id,
    modelId: job.model_id ?? null,
    type: job.type ?? null,
    status: job.status ?? null,
    createdAt: job.created_at ?? null,
    trainingStart: job.training_start ?? null,
    trainingEnd: job.training_end ?? null,
    errorMessage: job.error_message ?? null,
    step: job.step ?? null,
  };
}

export function jobEventFromWire({ id, type, data }: WireJobEvent): JobEvent {
  switch (type) {
    case "training_started":
      return { type: "training-started", id, gradientSteps: numberOrNull(data["num_sequences"]) };
    case "gradient_step":
      return { type: "gradient-step", id, metrics: numbersOf(data) };
    case "warning":
      return {
        type: "warning",
        id,
        code: typeof data["code"] === "string" ? data["code"] : "unknown",
        message: typeof data["message"] === "string" ? data["message"] : "the service gave no reason",
        value: numberOrNull(data["value"]),
        threshold: numberOrNull(data["threshold"]),
      };
    case "training_ended":
      return { type: "training-ended", id, step: numberOrNull(data["step"]), metrics: numbersOf(data) };
    case "training_failed":
      if (data["cancelled"] === true) return { type: "training-cancelled", id };
      return {
        type: "training-failed",
        id,
        message: typeof data["error_message"] === "string" ? data["error_message"] : "the service gave no reason",
      };
    case "training_cancelled":
      return { type: "training-cancelled", id };
  }
}

export function artifactFromWire(version: WireArtifactVersion): ArtifactVersion {
  const { id, entity, project, name, version: number, state, url, files, metadata, created_at: createdAt } = version;
  return {
    id,
    entity,
    project,
    name,
    version: number,
    state,
    url,
    files: files.map(({ path, size_bytes: sizeBytes, sha256 }) => ({ path, sizeBytes, sha256 })),
    metadata,
    createdAt,
  };
}

/**
 * camelCase options into a wire body of `schema`; undefined ones are left out.
 *
 * @throws ArgumentError `E_ARGUMENT` for a name the schema does not have (with the list of those it has) or a value outside its bounds.
 */
export function optionsToWire<T>(schema: z.ZodType<T> & { readonly shape: object }, options: object): T {
  const known = new Map(Object.keys(schema.shape).map((key) => [camelCase(key), key]));
  const body: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    const key = known.get(name);
    if (key === undefined) {
      throw new ArgumentError(`Unknown option \`${name}\`; expected one of ${[...known.keys()].sort().join(", ")}`, { param: name });
    }
    body[key] = value;
  }
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const name = camelCase(String(issue?.path[0] ?? ""));
  throw new ArgumentError(`Option \`${name}\`: ${issue?.message ?? "invalid"}`, { param: name });
}

/** Whether `schema` has the option `name` (camelCase). */
export function hasOption(schema: { readonly shape: object }, name: string): boolean {
  return Object.keys(schema.shape).some((key) => camelCase(key) === name);
}

/**
 * Checks a 2xx answer.
 *
 * @throws {@link ProtocolError} `E_PROTOCOL` when it does not fit.
 */
export function parseAnswer<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new ProtocolError(
    `The service's answer is no ${what}; at \`${issue?.path.join(".") || "(root)"}\`: ${issue?.message ?? "invalid"}`,
  );
}

function numberOrNull(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

function numbersOf(data: Readonly<Record<string, unknown>>): Record<string, number> {
  return Object.fromEntries(Object.entries(data).filter((entry): entry is [string, number] => typeof entry[1] === "number"));
}

function camelCase(key: string): string {
  return key.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

export type { Checkpoint, LoraConfig };
