/** Schemas of a model's checkpoints. "Extension" marks routes and fields that this service adds to the interface that it implements. */

import { z } from "zod";
import { listOf, uuid } from "./common.ts";
import { jobType } from "./training-job.ts";

/** Schema of {@link CheckpointLineage}. */
export const checkpointLineage = z.looseObject({
  /** Identifier of the base model from which all training of the weights started. */
  base_model: z.string(),
  /** Parent weights: `entity/project/name:stepN`, or the `artifact:///…` URL of an adapter; null = the base model. */
  parent: z.string().nullable(),
  /** Job that produced the checkpoint from its parent; null for step 0. */
  job_id: uuid.nullable(),
  /** Kind of that job; null for step 0. */
  job_type: jobType.nullable(),
});
/** Origin of a checkpoint's weights. @interface */
export type CheckpointLineage = z.infer<typeof checkpointLineage>;

/** Schema of {@link Checkpoint}. */
export const checkpoint = z.object({
  /** UUID, the cursor of paginated lists. */
  id: uuid,
  /** Step of the model: 0 at creation, one more with every successful job; never reused. */
  step: z.int().min(0),
  /** Final metrics of the job that made the checkpoint; empty for step 0 of the base model. */
  metrics: z.record(z.string(), z.number()),
  /** Creation time, ISO 8601. */
  created_at: z.string().optional(),
  /** Whether the checkpoint and its optimizer state are exempt from the service's checkpoint budget. */
  pinned: z.boolean().optional(),
  /** Origin of the weights. */
  lineage: checkpointLineage.optional(),
  /** Size of the checkpoint's files on disk in bytes; 0 for a step 0 that is the base model. */
  bytes: z.int().min(0).optional(),
});
/** A checkpoint of a model. All fields after `metrics` are extensions. @interface */
export type Checkpoint = z.infer<typeof checkpoint>;

/** Schema of {@link CheckpointList}. */
export const checkpointList = listOf(checkpoint);
/** Answer of `GET /v1/preview/models/{model_id}/checkpoints`: a page of checkpoints. @interface */
export type CheckpointList = z.infer<typeof checkpointList>;

/** Schema of {@link ArchiveQuery}. */
export const archiveQuery = z.strictObject({
  /** Further contents of an adapter's archive: `base` adds its base model in the folder `base`. No effect for a full model. */
  include: z.literal("base").optional(),
});
/** Query parameters of `GET /v1/preview/models/{model_id}/checkpoints/{step}/archive`. @interface */
export type ArchiveQuery = z.infer<typeof archiveQuery>;

/** Schema of {@link DeleteCheckpointsRequest}. */
export const deleteCheckpointsRequest = z.strictObject({
  /** Steps to delete. Step 0 and the newest step are rejected while the model has an unfinished job. */
  steps: z.array(z.int().min(0)),
});
/** Body of `DELETE /v1/preview/models/{model_id}/checkpoints`. @interface */
export type DeleteCheckpointsRequest = z.infer<typeof deleteCheckpointsRequest>;

/** Schema of {@link DeleteCheckpointsResponse}. */
export const deleteCheckpointsResponse = z.object({
  /** Number of checkpoints deleted by this request. */
  deleted_count: z.int(),
  /** Requested steps without a checkpoint. */
  not_found_steps: z.array(z.int()),
});
/** Answer of `DELETE /v1/preview/models/{model_id}/checkpoints`. Unknown steps are reported and are not an error. @interface */
export type DeleteCheckpointsResponse = z.infer<typeof deleteCheckpointsResponse>;
