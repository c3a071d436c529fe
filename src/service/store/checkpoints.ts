/** Rows of checkpoints. */
import { pageOf, requireCursor, type RowPage, type PageRequest } from "./paging.ts";
import type { CheckpointRow, JobRow, Store } from "./tables.ts";

/** Returns the newest checkpoint of a model; undefined if all were deleted. */
export function newestCheckpoint(store: Store, modelId: string): Promise<CheckpointRow | undefined> {
  return store.selectFrom("checkpoints").selectAll().where("model_id", "=", modelId).orderBy("step", "desc").limit(1).executeTakeFirst();
}

/** Returns the checkpoint that an unfinished job started from: the newest one of its model that the job has not added itself. */
export function startOfJob(store: Store, { id, model_id: modelId }: Pick<JobRow, "id" | "model_id">): Promise<CheckpointRow | undefined> {
  const addedByJob = store.selectFrom("checkpoint_aliases").select("checkpoint_id").where("job_id", "=", id);
  return store
    .selectFrom("checkpoints")
    .selectAll()
    .where("model_id", "=", modelId)
    .where("id", "not in", addedByJob)
    .orderBy("step", "desc")
    .limit(1)
    .executeTakeFirst();
}

/** Returns the checkpoint of a model at a step; undefined if it was deleted or never made. */
export function checkpointAt(store: Store, modelId: string, step: number): Promise<CheckpointRow | undefined> {
  return store.selectFrom("checkpoints").selectAll().where("model_id", "=", modelId).where("step", "=", step).executeTakeFirst();
}

/**
 * Returns a page of a model's checkpoints, ordered by step.
 *
 * @param after - Id of the last checkpoint on the previous page.
 * @throws ArgumentError `E_ARGUMENT` if `after` is not a checkpoint of the model.
 */
export async function pageOfCheckpoints(
  store: Store,
  modelId: string,
  { after, limit, order }: PageRequest & { readonly order: "asc" | "desc" },
): Promise<RowPage<CheckpointRow>> {
  const allOfModel = store.selectFrom("checkpoints").selectAll().where("model_id", "=", modelId);
  let query = allOfModel.orderBy("step", order).limit(limit + 1);
  if (after !== undefined) {
    const cursor = requireCursor(await allOfModel.where("id", "=", after).executeTakeFirst(), after, "a checkpoint of this model");
    query = query.where("step", order === "asc" ? ">" : "<", cursor.step);
  }
  return pageOf(await query.execute(), limit);
}
