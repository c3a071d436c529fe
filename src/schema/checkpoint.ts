import { z } from "zod";
import { listOf, uuid } from "./common.ts";

/** A checkpoint of a model. */
export const checkpoint = z.object({
  id: uuid,
  step: z.int().min(0),
  metrics: z.record(z.string(), z.number()),
});
export type Checkpoint = z.infer<typeof checkpoint>;

/** Answer of `GET /v1/preview/models/{model_id}/checkpoints`. */
export const checkpointList = listOf(checkpoint);
export type CheckpointList = z.infer<typeof checkpointList>;

/** Body of `DELETE /v1/preview/models/{model_id}/checkpoints`. */
export const deleteCheckpointsRequest = z.strictObject({ steps: z.array(z.int().min(0)) });
export type DeleteCheckpointsRequest = z.infer<typeof deleteCheckpointsRequest>;

/** Its answer: unknown steps are reported, not an error. */
export const deleteCheckpointsResponse = z.object({
  deleted_count: z.int(),
  not_found_steps: z.array(z.int()),
});
export type DeleteCheckpointsResponse = z.infer<typeof deleteCheckpointsResponse>;
