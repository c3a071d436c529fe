import { z } from "zod";
import { listOf, uuid } from "./common.ts";

/** Origin of a checkpoint's weights. */
export const checkpointLineage = z.looseObject({
  base_model: z.string(),
  /** Parent weights: `entity/project/name:stepN`, or the `artifact:///…` URL of an adapter; null = the base model. */
  parent: z.string().nullable(),
  /** Job that produced the checkpoint from its parent; null for step 0. */
  job_id: uuid.nullable(),
  job_type: z.enum(["rl", "sft"]).nullable(),
});
export type CheckpointLineage = z.infer<typeof checkpointLineage>;

/** A checkpoint of a model. All fields after `metrics` are extensions. */
export const checkpoint = z.object({
  id: uuid,
  step: z.int().min(0),
  metrics: z.record(z.string(), z.number()),
  /** Creation time, ISO 8601. */
  created_at: z.string().optional(),
  /** Whether the checkpoint and its optimizer state are exempt from the service's checkpoint budget. */
  pinned: z.boolean().optional(),
  lineage: checkpointLineage.optional(),
});
export type Checkpoint = z.infer<typeof checkpoint>;

/** Answer of `GET /v1/preview/models/{model_id}/checkpoints`. */
export const checkpointList = listOf(checkpoint);
export type CheckpointList = z.infer<typeof checkpointList>;

/** Body of `DELETE /v1/preview/models/{model_id}/checkpoints`. */
export const deleteCheckpointsRequest = z.strictObject({ steps: z.array(z.int().min(0)) });
export type DeleteCheckpointsRequest = z.infer<typeof deleteCheckpointsRequest>;

/** Answer of `DELETE /v1/preview/models/{model_id}/checkpoints`. Unknown steps are reported and are not an error. */
export const deleteCheckpointsResponse = z.object({
  deleted_count: z.int(),
  not_found_steps: z.array(z.int()),
});
export type DeleteCheckpointsResponse = z.infer<typeof deleteCheckpointsResponse>;
