/**
 * Schemas of base models and trainable models.
 *
 * "Extension" marks routes and fields that this service adds to the interface that it implements.
 */

import { z } from "zod";
import { listOf, namePart, newestFirstQuery, uuid } from "./common.ts";

/** Schema of {@link LoraConfig}. */
export const loraConfig = z.strictObject({
  /** Adapter rank, 1 to 256. */
  rank: z.int().min(1).max(256),
  /** Scale numerator. @default 2 × rank */
  alpha: z.number().positive().optional(),
});
/** Low-rank adapter settings of a model. Extension; absent or null = full-parameter training. @interface */
export type LoraConfig = z.infer<typeof loraConfig>;

/** Schema of {@link CreateModelRequest}. */
export const createModelRequest = z.strictObject({
  /** Project where the model is stored. */
  project: namePart,
  /** Unique within the project. */
  name: namePart,
  /**
   * Base model: an identifier that the service knows; the absolute path of a directory or `.gguf` file in a directory that the service
   * allows; `hf:<owner>/<name>`, also without `hf:`, with an optional `@revision`; or `ollama:<name>[:tag]`.
   */
  base_model: z.string().min(1),
  /** Team or user of the key in use. @default the key's entity */
  entity: namePart.nullish(),
  /** Return the existing model of the same name instead of a conflict error. Its base model and adapter are not compared. @default false */
  return_existing: z.boolean().nullish(),
  /** Extension: low-rank adapter settings. @default null: full-parameter training; with `from`, the settings of the source */
  lora: loraConfig.nullish(),
  /**
   * Extension: initial weights instead of the base model's. Either a checkpoint (`entity/project/name:stepN`, without a step the newest; or
   * its UUID), or an artifact with an adapter in PEFT layout (`artifact:///entity/project/name:vN`).
   */
  from: z.string().min(1).nullish(),
  /** Extension: also load the optimizer state of the checkpoint in `from`. @default false */
  keep_optimizer: z.boolean().nullish(),
});
/** Body of `POST /v1/preview/models`. @interface */
export type CreateModelRequest = z.infer<typeof createModelRequest>;

/** Schema of {@link AddBaseModelRequest}. */
export const addBaseModelRequest = z.strictObject({
  /**
   * Base model: the absolute path of a directory or `.gguf` file in a directory that the service allows, `hf:<owner>/<name>[@revision]`, or
   * `ollama:<name>[:tag]`. Without `id`, also an identifier that the service knows.
   */
  source: z.string().min(1),
  /** Identifier for `model` and `base_model`, until the service stops. @default null: the source itself */
  id: z.string().min(1).nullish(),
});
/** Body of `POST /v1/preview/base-models`. Extension. @interface */
export type AddBaseModelRequest = z.infer<typeof addBaseModelRequest>;

/** Schema of {@link BaseModelName}. */
export const baseModelName = z.object({
  /** Name of the base model for `model` and `base_model`. */
  id: z.string(),
});
/** Name of an added base model. Extension. @interface */
export type BaseModelName = z.infer<typeof baseModelName>;

/** Schema of {@link Model}. */
export const model = z.object({
  /** UUID that addresses the model in the model and job routes. */
  id: uuid,
  /** Team or user that owns the model. */
  entity: z.string(),
  /** Project where the model is stored. */
  project: z.string(),
  /** Name, unique within entity and project. */
  name: z.string(),
  /** Base model whose architecture and tokenizer the model has. */
  base_model: z.string(),
  /** Identifier of the model's run on a service that has runs; always null on this service. */
  run_id: z.string().nullable(),
  /** Extension: low-rank adapter settings; absent or null = full-parameter training. */
  lora: loraConfig.nullish(),
});
/** A trainable model in the wire's form: address, base model and adapter. @interface */
export type Model = z.infer<typeof model>;

/** Schema of {@link ModelQuery}. */
export const modelQuery = newestFirstQuery.extend({
  /** Only models of this entity. */
  entity: namePart.optional(),
  /** Only models of this project. */
  project: namePart.optional(),
  /** Only models of this name. */
  name: namePart.optional(),
});
/** Query parameters of `GET /v1/preview/models`. Extension. @interface */
export type ModelQuery = z.infer<typeof modelQuery>;

/** Schema of {@link ModelSummary}. */
export const modelSummary = model.extend({
  /** Creation time, ISO 8601. */
  created_at: z.string(),
  /** Step of the newest checkpoint; null if all checkpoints were deleted. */
  latest_step: z.int().min(0).nullable(),
  /** Number of stored checkpoints, step 0 included. */
  checkpoints: z.int().min(0),
  /** Size of all checkpoints on disk in bytes. A file that several checkpoints share counts once. */
  bytes: z.int().min(0),
});
/** A trainable model with its checkpoints' number and size: an entry of `GET /v1/preview/models`. Extension. @interface */
export type ModelSummary = z.infer<typeof modelSummary>;

/** Schema of {@link ModelList}. */
export const modelList = listOf(modelSummary);
/** Answer of `GET /v1/preview/models`: a page of trainable models, newest first. Extension. @interface */
export type ModelList = z.infer<typeof modelList>;

/** Schema of {@link DeleteModelResponse}. */
export const deleteModelResponse = z.object({
  /** UUID of the deleted model. */
  model_id: uuid,
  /** Number of checkpoints deleted with the model. */
  deleted_checkpoints: z.int(),
  /** Whether a run was deleted with the model; always false on this service. */
  deleted_run: z.boolean(),
});
/** Answer of `DELETE /v1/preview/models/{model_id}`. @interface */
export type DeleteModelResponse = z.infer<typeof deleteModelResponse>;

/** Schema of {@link ModelPermission}. */
export const modelPermission = z.looseObject({
  /** Identifier of the form `modelperm-…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("model_permission"),
  /** Creation time in seconds since 1970. */
  created: z.number(),
  /** Whether clients may create engines of the model; always false on this service. */
  allow_create_engine: z.boolean(),
  /** Whether the model answers completion requests; always true on this service. */
  allow_sampling: z.boolean(),
  /** Whether completions may include log-probabilities; always true on this service. */
  allow_logprobs: z.boolean(),
  /** Whether the model can build search indices; always false on this service. */
  allow_search_indices: z.boolean(),
  /** Whether the model appears in lists; always true on this service. */
  allow_view: z.boolean(),
  /** Whether training jobs accept the model; false for a base model that only an upstream server samples. */
  allow_fine_tuning: z.boolean(),
  /** Organization that has the permissions; `*` = every one. */
  organization: z.string(),
  /** Group within the organization; null = every one. */
  group: z.string().nullable(),
  /** Whether the permission blocks other clients; always false on this service. */
  is_blocking: z.boolean(),
});
/** Permissions of a served model, as listed by vLLM. @interface */
export type ModelPermission = z.infer<typeof modelPermission>;

/** Schema of {@link ServedModel}. */
export const servedModel = z.looseObject({
  /** Value for the `model` field of a chat request: `entity/project/name`, or the identifier of a base model. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("model").default("model"),
  /** Seconds since 1970: creation time of a trainable model, start time of the service for a base model. */
  created: z.number(),
  /** Entity that owns the model; `whetstone` for a base model of this service. */
  owned_by: z.string(),
  /** `entity/project/name:stepN` of the newest checkpoint; the identifier of a base model. */
  root: z.string().nullish(),
  /** Base model of a trainable model; null for a base model. */
  parent: z.string().nullish(),
  /** Context length in tokens; null if unknown. */
  max_model_len: z.int().nullish(),
  /** Extension: number of parameters of the base model, without an adapter; null if unknown. */
  parameters: z.int().nullish(),
  /** Permissions, one entry on this service. */
  permission: z.array(modelPermission).nullish(),
});
/** Entry of `GET /v1/models`. Unknown keys of other servers are kept. @interface */
export type ServedModel = z.infer<typeof servedModel>;

/** Schema of {@link DeletedServedModel}. */
export const deletedServedModel = z.object({
  /** Name of the deleted model. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("model"),
  /** Always true: an unknown model is answered 404. */
  deleted: z.literal(true),
});
/** Answer of `DELETE /v1/models/{model}`. Extension. @interface */
export type DeletedServedModel = z.infer<typeof deletedServedModel>;

/** Schema of {@link ServedModelList}. */
export const servedModelList = z.object({
  /** Type of the object in the wire format. */
  object: z.literal("list").default("list"),
  /** Base models first, then every trainable model with a checkpoint. */
  data: z.array(servedModel),
});
/** Answer of `GET /v1/models`. @interface */
export type ServedModelList = z.infer<typeof servedModelList>;
