import { ArgumentError } from "../../errors.ts";
import type { CheckpointRow, Store } from "./tables.ts";

/** Returns the newest checkpoint of a model. */
export function newestCheckpoint(store: Store, modelId: string): Promise<CheckpointRow | undefined> {
  return store.selectFrom("checkpoints").selectAll().where("model_id", "=", modelId).orderBy("step", "desc").limit(1).executeTakeFirst();
}

/** Returns the checkpoint of a model at a step. */
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
  { after, limit, order }: { readonly after?: string | undefined; readonly limit: number; readonly order: "asc" | "desc" },
): Promise<{ rows: CheckpointRow[]; hasMore: boolean }> {
  let query = store
    .selectFrom("checkpoints")
    .selectAll()
    .where("model_id", "=", modelId)
    .orderBy("step", order)
    .limit(limit + 1);
  if (after !== undefined) {
    const cursor = await store
      .selectFrom("checkpoints")
      .select("step")
      .where("model_id", "=", modelId)
      .where("id", "=", after)
      .executeTakeFirst();
    if (cursor === undefined)
      throw new ArgumentError(`Expected \`after\` to be the id of a checkpoint of this model, got '${after.slice(0, 100)}'`, {
        param: "after",
      });
    query = query.where("step", order === "asc" ? ">" : "<", cursor.step);
  }
  const rows = await query.execute();
  return { rows: rows.slice(0, limit), hasMore: rows.length > limit };
}
