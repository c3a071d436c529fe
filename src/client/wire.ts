/**
 * Conversion between the wire's snake_case and the client's camelCase. Free-form maps (metrics, metadata, event data) keep their keys, and
 * chat bodies are not converted.
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

/** Camel-case form of a snake_case name: `learning_rate` → `learningRate`. */
export type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelCase<Tail>>}` : S;
/** `T` with its top-level keys in camelCase. */
export type CamelKeys<T> = { readonly [K in keyof T as K extends string ? CamelCase<K> : never]: T[K] };

/** Description of a trainable model. */
export interface ModelInfo {
  readonly id: string;
  readonly entity: string;
  readonly project: string;
  readonly name: string;
  readonly baseModel: string;
  /** Experiment-tracking run; null if the service has none. */
  readonly runId: string | null;
  /** Low-rank adapter settings; null = full-parameter training. */
  readonly lora: LoraConfig | null;
}

/** Options of `models.create`. */
export interface CreateModelOptions {
  /** Project where the model is stored. */
  readonly project: string;
  /** Unique within the project. */
  readonly name: string;
  /** Identifier of a base model that the service has. */
  readonly baseModel: string;
  /** Owner of the model. @default the key's entity */
  readonly entity?: string | undefined;
  /** Return the existing model of this name instead of a conflict error. Its base model and adapter are not compared. @default false */
  readonly returnExisting?: boolean | undefined;
  /** Extension: low-rank adapter settings. @default full-parameter training; with `from`, the settings of the source */
  readonly lora?: LoraConfig | undefined;
  /**
   * Extension: initial weights instead of the base model's. Either a checkpoint (`entity/project/name:stepN`, without a step the newest;
   * also `ModelPolicy.id`), or an artifact with an adapter in PEFT layout (`artifact:///entity/project/name:vN`). @default the base model
   */
  readonly from?: string | undefined;
  /** Extension: also load the optimizer state of the checkpoint in `from`. @default false */
  readonly keepOptimizer?: boolean | undefined;
}

/** Result of deleting a model. */
export interface DeletedModel {
  readonly modelId: string;
  readonly deletedCheckpoints: number;
  /** Whether an experiment-tracking run was deleted too; always false for this package's service, whose models have none. */
  readonly deletedRun: boolean;
}

/** Result of deleting checkpoints. */
export interface DeletedCheckpoints {
  readonly deletedCount: number;
  /** Steps that matched no checkpoint. */
  readonly notFoundSteps: readonly number[];
}

/** Entry of the list of served models. */
export interface ServedModel {
  readonly id: string;
  /** Creation time in seconds since 1970; 0 if the service does not report it. */
  readonly created: number;
  readonly ownedBy: string;
  /** Name of a trainable model's newest checkpoint; null if the service does not list it. */
  readonly root: string | null;
  /** Base model of a trainable model; null for a base model, and if the service does not list it. */
  readonly parent: string | null;
  /** Context length in tokens; null if unknown. */
  readonly maxModelLen: number | null;
}

/** State of a training job. A service that implements only the interface returns just `id`; all other fields are then null. */
export interface TrainingJobInfo {
  readonly id: string;
  readonly modelId: string | null;
  readonly type: "rl" | "sft" | null;
  readonly status: "queued" | "running" | "succeeded" | "failed" | "cancelled" | null;
  readonly createdAt: string | null;
  readonly trainingStart: string | null;
  readonly trainingEnd: string | null;
  readonly errorMessage: string | null;
  /** Step of the checkpoint that this job created. */
  readonly step: number | null;
}

/** A file of an artifact version. */
export interface ArtifactFileInfo {
  readonly path: string;
  readonly sizeBytes: number;
  /** SHA-256 digest, lower-case hexadecimal. */
  readonly sha256: string;
}

/** A version of an artifact: an `open` version accepts files, a `committed` version is immutable and usable. */
export interface ArtifactVersion {
  readonly id: string;
  readonly entity: string;
  readonly project: string;
  readonly name: string;
  readonly version: number;
  readonly state: "open" | "committed";
  /** Address of the version: `artifact:///entity/project/name:vN`. */
  readonly url: string;
  readonly files: readonly ArtifactFileInfo[];
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly createdAt: string;
}

/** Event of a training job. Names in `metrics` are the service's. */
export type JobEvent =
  | {
      readonly type: "training-started";
      readonly id: string | null;
      /** Expected number of gradient steps; null if the service did not report it. */
      readonly gradientSteps: number | null;
    }
  | { readonly type: "gradient-step"; readonly id: string | null; readonly metrics: Readonly<Record<string, number>> }
  | {
      /** Extension: metrics of the preceding step are suspicious; `code` names the check. */
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
      /** Step of the checkpoint that this job created; null if the service did not report it. */
      readonly step: number | null;
      readonly metrics: Readonly<Record<string, number>>;
    }
  | { readonly type: "training-failed"; readonly id: string | null; readonly message: string }
  | { readonly type: "training-cancelled"; readonly id: string | null };

/** Settings of an RL step: the interface's `experimental_config` in camelCase. Absent settings have the service's defaults. */
export type RlOptions = Partial<CamelKeys<RlConfig>>;
/** Settings of an SFT job: `config` and `experimental_config` in camelCase. */
export type SftOptions = Partial<CamelKeys<SftConfig> & CamelKeys<SftExperimentalConfig>>;

export function modelFromWire(model: WireModel): ModelInfo {
  const { id, entity, project, name, base_model: baseModel, run_id: runId, lora } = model;
  return { id, entity, project, name, baseModel, runId, lora: lora ?? null };
}

export function createModelToWire(options: CreateModelOptions): CreateModelRequest {
  const { project, name, baseModel, entity, returnExisting, lora, from, keepOptimizer } = options;
  // Omits absent options: a service without the extensions may reject unknown fields.
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

/**
 * Converts a job event from its wire form.
 *
 * @param event - Event as the service sent it.
 */
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
 * Converts camelCase options to a wire body of `schema`. Undefined options are omitted.
 *
 * @throws ArgumentError `E_ARGUMENT` for a name that the schema lacks (the message lists the valid names) or a value outside its bounds.
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

/** Returns whether `schema` has the option `name` (camelCase). */
export function hasOption(schema: { readonly shape: object }, name: string): boolean {
  return Object.keys(schema.shape).some((key) => camelCase(key) === name);
}

/**
 * Validates a 2xx response.
 *
 * @throws {@link ProtocolError} `E_PROTOCOL` if the response does not match `schema`.
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
