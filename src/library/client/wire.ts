/**
 * Public types of models and training jobs, and the conversion between the wire's snake_case and the client's camelCase. Free-form maps
 * (metrics, metadata, event data) keep their keys, and chat bodies are not converted.
 *
 * "Extension" marks options and events of this package's service that the hosted interface does not have.
 */
import type { z } from "zod";
import type {
  JobEvent as WireJobEvent,
  LoraConfig,
  Model as WireModel,
  RlConfig,
  PreferenceConfig,
  SftConfig,
  SftExperimentalConfig,
} from "../../base/schema/index.ts";
import { camelCase, type CamelCase } from "../../base/util/letter-case.ts";
import { parseResponse } from "./options.ts";

/** Reason in events of services that give none. */
export const NO_REASON = "the service gave no reason";

/** `T` with its top-level keys in camelCase. */
export type CamelKeys<T> = { readonly [K in keyof T as K extends string ? CamelCase<K> : never]: T[K] };

/** Output of a schema as {@link CamelKeys}; a field that may be undefined is null instead. */
type FromWire<S extends z.ZodRawShape> = {
  readonly [K in keyof S as K extends string ? CamelCase<K> : never]: undefined extends z.output<S[K]>
    ? Exclude<z.output<S[K]>, undefined> | null
    : z.output<S[K]>;
};

/** Description of a trainable model. */
export interface ModelInfo extends Readonly<Pick<WireModel, "id" | "entity" | "project" | "name">> {
  /** Base model whose architecture and tokenizer the model has. */
  readonly baseModel: string;
  /** Experiment-tracking run; null if the service has none. */
  readonly runId: string | null;
  /** Low-rank adapter settings; null = full-parameter training. */
  readonly lora: LoraConfig | null;
}

/** A trainable model with the number and size of its checkpoints: an entry of `models.listTrainable`. */
export interface ModelSummary extends ModelInfo {
  /** Creation time, ISO 8601. */
  readonly createdAt: string;
  /** Step of the newest checkpoint; null if all checkpoints were deleted. */
  readonly latestStep: number | null;
  /** Number of stored checkpoints, step 0 included. */
  readonly checkpoints: number;
  /** Size of all checkpoints on disk in bytes. A file that several checkpoints share counts once. */
  readonly bytes: number;
}

/** Name, base model and initial weights of the model that `models.create` creates. */
export interface CreateModelOptions {
  /** Project where the model is stored. */
  readonly project: string;
  /** Unique within the project. */
  readonly name: string;
  /**
   * Base model: an identifier that the service knows; the path of a directory in Hugging Face layout or of a `.gguf` file;
   * `hf:<owner>/<name>[@revision]`; or `ollama:<name>[:tag]`. A relative path is one of this process.
   */
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
  /** UUID of the deleted model. */
  readonly modelId: string;
  /** Number of checkpoints deleted with the model. */
  readonly deletedCheckpoints: number;
  /** Whether an experiment-tracking run was deleted too; always false for this package's service, whose models have none. */
  readonly deletedRun: boolean;
}

/** Result of deleting checkpoints. */
export interface DeletedCheckpoints {
  /** Number of checkpoints deleted by the call. */
  readonly deletedCount: number;
  /** Steps that matched no checkpoint. */
  readonly notFoundSteps: readonly number[];
}

/** Entry of the list of served models. */
export interface ServedModel {
  /** Value for the `model` field of a chat request. */
  readonly id: string;
  /** Creation time in seconds since 1970; 0 if the service does not report it. */
  readonly created: number;
  /** Entity that owns the model; `whetstone` for a base model of this package's service. */
  readonly ownedBy: string;
  /** Name of a trainable model's newest checkpoint, under vLLM's name for the field; null if the service does not list it. */
  readonly root: string | null;
  /** Base model of a trainable model; null for a base model, and if the service does not list it. */
  readonly parent: string | null;
  /** Context length in tokens; null if unknown. */
  readonly maxModelLen: number | null;
  /** Number of parameters of the base model, without an adapter; null if unknown. */
  readonly parameters: number | null;
}

/** State of a training job. A service without the extensions returns just `id`; all other fields are then null. */
export interface TrainingJobInfo {
  /** UUID of the job. */
  readonly id: string;
  /** UUID of the trained model. */
  readonly modelId: string | null;
  /** Kind of training. */
  readonly type: "rl" | "sft" | "preference" | null;
  /** State at the time of the request. */
  readonly status: "queued" | "running" | "succeeded" | "failed" | "cancelled" | null;
  /** Time at which the service accepted the job, ISO 8601. */
  readonly createdAt: string | null;
  /** Start of the computation, ISO 8601; null before. */
  readonly trainingStart: string | null;
  /** End of the job in any final state, ISO 8601; null before. */
  readonly trainingEnd: string | null;
  /** Cause of a failure or cancellation; null otherwise. */
  readonly errorMessage: string | null;
  /** Step of the checkpoint that this job created. */
  readonly step: number | null;
}

/** Event of a training job. Names in `metrics` are the service's. */
export type JobEvent = {
  /**
   * Id of the event. Null if the service has no events route: following a job then derives the events from the job's status or newest
   * checkpoint.
   */
  readonly id: string | null;
} & (
  | {
      readonly type: "training-started";
      /** Expected number of gradient steps; null if the service did not report it. */
      readonly gradientSteps: number | null;
    }
  | {
      readonly type: "gradient-step";
      /** Metrics of the optimizer step. */
      readonly metrics: Readonly<Record<string, number>>;
    }
  | {
      /** Extension: metrics of the preceding step are suspicious; `code` names the check. */
      readonly type: "warning";
      /** Name of the check. */
      readonly code: string;
      /** Description of the suspicious value. */
      readonly message: string;
      /** Suspicious value; null if the service did not report it. */
      readonly value: number | null;
      /** Limit that the value exceeds; null if the service did not report it. */
      readonly threshold: number | null;
    }
  | {
      readonly type: "training-ended";
      /** Step of the checkpoint that this job created; null if the service did not report it. */
      readonly step: number | null;
      /** Final metrics of the job, as on its checkpoint. */
      readonly metrics: Readonly<Record<string, number>>;
    }
  | {
      readonly type: "training-failed";
      /** Reason of the service. */
      readonly message: string;
    }
  | {
      /**
       * Cancellation. The list of events of this package's service has two of them for one job: clients of the hosted interface expect a
       * failure at the end, which is converted to a second cancellation.
       */
      readonly type: "training-cancelled";
    }
);

/** Settings of an RL step: the interface's `experimental_config` in camelCase. Absent settings have the service's defaults. */
export type RlOptions = Partial<CamelKeys<RlConfig>>;
/** Settings of an SFT job: `config` and `experimental_config` in camelCase. */
export type SftOptions = Partial<CamelKeys<SftConfig> & CamelKeys<SftExperimentalConfig>>;
/** Settings of a preference job: its `config` in camelCase. Absent settings have the service's defaults. */
export type PreferenceOptions = Partial<CamelKeys<PreferenceConfig>>;

/** Converts the names of the fields of `schema` to camelCase, not of nested ones. Absent fields become null; unknown ones are left out. */
export function fromWire<S extends z.ZodRawShape>(schema: z.ZodObject<S>, wire: z.output<z.ZodObject<S>>): FromWire<S> {
  const fields = wire as Readonly<Record<string, unknown>>;
  return Object.fromEntries(Object.keys(schema.shape).map((key) => [camelCase(key), fields[key] ?? null])) as FromWire<S>;
}

/** Validates a 2xx response as {@link parseResponse} does, and converts its fields as {@link fromWire} does. */
export function parseFields<S extends z.ZodRawShape>(schema: z.ZodObject<S>, answer: unknown, what: string): FromWire<S> {
  return fromWire(schema, parseResponse(schema, answer, what));
}

/**
 * Converts options to the fields of `schema`, without validation: the service validates them. Omits absent options, because a service without
 * the extensions may reject unknown fields.
 */
export function toWire<S extends z.ZodRawShape>(
  schema: z.ZodObject<S>,
  options: Partial<CamelKeys<z.input<z.ZodObject<S>>>>,
): Record<string, unknown> {
  const values = options as Readonly<Record<string, unknown>>;
  const fields = Object.keys(schema.shape).map((key) => [key, values[camelCase(key)]]);
  return Object.fromEntries(fields.filter(([, value]) => value !== undefined));
}

/**
 * Converts a job event from its wire form.
 *
 * @param event - Event as the service sent it.
 * @returns the event in camelCase; a missing code or message is replaced by a placeholder.
 * @example
 * ```ts
 * const { data } = await service.trainingJobs.events(job.id);
 * for (const event of data.map(jobEventFromWire)) console.log(event.type);
 * ```
 */
export function jobEventFromWire({ id, type, data }: WireJobEvent): JobEvent {
  switch (type) {
    case "training_started":
      // The wire's name for the number of gradient steps is `num_sequences`.
      return { type: "training-started", id, gradientSteps: numberOrNull(data["num_sequences"]) };
    case "gradient_step":
      return { type: "gradient-step", id, metrics: numbersOf(data) };
    case "warning":
      return {
        type: "warning",
        id,
        code: textOr(data["code"], "unknown"),
        message: textOr(data["message"], NO_REASON),
        value: numberOrNull(data["value"]),
        threshold: numberOrNull(data["threshold"]),
      };
    case "training_ended":
      return { type: "training-ended", id, step: numberOrNull(data["step"]), metrics: numbersOf(data) };
    case "training_failed":
      // Second event of a cancelled job, for clients of the hosted interface, which has no `training_cancelled`.
      if (data["cancelled"] === true) return { type: "training-cancelled", id };
      return { type: "training-failed", id, message: textOr(data["error_message"], NO_REASON) };
    case "training_cancelled":
      return { type: "training-cancelled", id };
  }
}

/** Returns a text; the placeholder for a missing value or one of another type. */
function textOr(value: unknown, placeholder: string): string {
  return typeof value === "string" ? value : placeholder;
}

/** Returns a number; null for a missing value or one of another type. */
function numberOrNull(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

/** Returns the entries with numbers as values. */
function numbersOf(data: Readonly<Record<string, unknown>>): Record<string, number> {
  return Object.fromEntries(Object.entries(data).filter((entry): entry is [string, number] => typeof entry[1] === "number"));
}
