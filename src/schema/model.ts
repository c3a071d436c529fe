import { z } from "zod";
import { namePart, uuid } from "./common.ts";

/** Low-rank adapter settings of a model. Extension; absent or null = full-parameter training. */
export const loraConfig = z.strictObject({
  /** Adapter rank, 1 to 256. */
  rank: z.int().min(1).max(256),
  /** Scale numerator. @default 2 × rank */
  alpha: z.number().positive().optional(),
});
export type LoraConfig = z.infer<typeof loraConfig>;

/** Body of `POST /v1/preview/models`. */
export const createModelRequest = z.strictObject({
  /** Project where the model is stored. */
  project: namePart,
  /** Unique within the project. */
  name: namePart,
  /** A served base model's identifier or a directory under an allowed root. */
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
export type CreateModelRequest = z.infer<typeof createModelRequest>;

/** A trainable model. */
export const model = z.object({
  id: uuid,
  entity: z.string(),
  project: z.string(),
  name: z.string(),
  base_model: z.string(),
  run_id: z.string().nullable(),
  /** Extension: low-rank adapter settings; absent or null = full-parameter training. */
  lora: loraConfig.nullish(),
});
export type Model = z.infer<typeof model>;

/** Answer of `DELETE /v1/preview/models/{model_id}`. */
export const deleteModelResponse = z.object({
  model_id: uuid,
  deleted_checkpoints: z.int(),
  deleted_run: z.boolean(),
});
export type DeleteModelResponse = z.infer<typeof deleteModelResponse>;

/** Permissions of a served model, as listed by vLLM. */
export const modelPermission = z.looseObject({
  id: z.string(),
  object: z.literal("model_permission"),
  /** Creation time in seconds since 1970. */
  created: z.number(),
  allow_create_engine: z.boolean(),
  allow_sampling: z.boolean(),
  allow_logprobs: z.boolean(),
  allow_search_indices: z.boolean(),
  allow_view: z.boolean(),
  allow_fine_tuning: z.boolean(),
  organization: z.string(),
  group: z.string().nullable(),
  is_blocking: z.boolean(),
});
export type ModelPermission = z.infer<typeof modelPermission>;

/** Entry of `GET /v1/models`. Unknown keys of other servers are kept. */
export const servedModel = z.looseObject({
  id: z.string(),
  object: z.literal("model").default("model"),
  /** Seconds since 1970: creation time of a trainable model, start time of the service for a base model. */
  created: z.number(),
  owned_by: z.string(),
  /** `entity/project/name:stepN` of the newest checkpoint; the identifier of a base model. */
  root: z.string().nullish(),
  /** Base model of a trainable model; null for a base model. */
  parent: z.string().nullish(),
  /** Context length in tokens; null if unknown. */
  max_model_len: z.int().nullish(),
  permission: z.array(modelPermission).nullish(),
});
export type ServedModel = z.infer<typeof servedModel>;

/** Answer of `GET /v1/models`. */
export const servedModelList = z.object({ object: z.literal("list").default("list"), data: z.array(servedModel) });
export type ServedModelList = z.infer<typeof servedModelList>;
