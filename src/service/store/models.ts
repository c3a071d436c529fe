/** Rows of trainable models. */
import { NotFoundError } from "../../base/errors.ts";
import type { ModelQuery } from "../../base/schema/index.ts";
import type { QualifiedName } from "../common/names.ts";
import { isAfter, pageOf, requireCursor, type RowPage } from "./paging.ts";
import { entityFor } from "./visibility.ts";
import type { ModelRow, Store } from "./tables.ts";

/** Returns a model. @throws NotFoundError `E_NOT_FOUND` if the model does not exist. */
export async function getModel(store: Store, id: string): Promise<ModelRow> {
  const row = await store.selectFrom("models").selectAll().where("id", "=", id.toLowerCase()).executeTakeFirst();
  if (row === undefined)
    throw new NotFoundError(`Model '${id}' does not exist. Create it with POST /v1/preview/models`, { param: "model_id" });
  return row;
}

/**
 * Finds a model by its qualified name.
 *
 * @param param - Request field named in the error.
 * @throws ForbiddenError `E_FORBIDDEN` for another entity than the caller's.
 */
export async function findModel(store: Store, { entity, project, name }: QualifiedName, param: string): Promise<ModelRow | undefined> {
  entityFor(store, entity, param);
  return store
    .selectFrom("models")
    .selectAll()
    .where((where) => where.and({ entity, project, name }))
    .executeTakeFirst();
}

/** Lists all models in order of creation, with the step of the newest checkpoint (null if all were deleted). */
export function listModels(store: Store): Promise<(ModelRow & { latest_step: number | null })[]> {
  return store
    .selectFrom("models")
    .leftJoin("checkpoints", "checkpoints.model_id", "models.id")
    .selectAll("models")
    .select((eb) => eb.fn.max<number | null>("checkpoints.step").as("latest_step"))
    .groupBy("models.id")
    .orderBy("models.created_at")
    .orderBy("models.id")
    .execute();
}

/**
 * Returns a page of models, newest first, with the number of checkpoints and the step of the newest (null if all were deleted).
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not a model.
 * @throws ForbiddenError `E_FORBIDDEN` for another entity than the caller's.
 */
export async function pageOfModels(
  store: Store,
  { after, limit, ...filters }: ModelQuery,
): Promise<RowPage<ModelRow & { latest_step: number | null; checkpoints: number }>> {
  entityFor(store, filters.entity, "entity");
  let query = store
    .selectFrom("models")
    .leftJoin("checkpoints", "checkpoints.model_id", "models.id")
    .selectAll("models")
    .select((eb) => [
      eb.fn.max<number | null>("checkpoints.step").as("latest_step"),
      eb.fn.count<number>("checkpoints.id").as("checkpoints"),
    ])
    .groupBy("models.id")
    .orderBy("models.created_at", "desc")
    .orderBy("models.id", "desc")
    .limit(limit + 1);
  for (const column of ["entity", "project", "name"] as const) {
    const value = filters[column];
    if (value !== undefined) query = query.where(column, "=", value);
  }
  if (after !== undefined) {
    const row = await store.selectFrom("models").select(["created_at", "id"]).where("id", "=", after.toLowerCase()).executeTakeFirst();
    query = query.where(isAfter("models", requireCursor(row, after, "a model")));
  }
  return pageOf(await query.execute(), limit);
}

/** Returns the number of models and of their checkpoints, by entity. */
export async function countModels(
  store: Store,
): Promise<{ readonly entity: string; readonly models: number; readonly checkpoints: number }[]> {
  const rows = await store
    .selectFrom("models")
    .leftJoin("checkpoints", "checkpoints.model_id", "models.id")
    .select((eb) => [
      "models.entity",
      eb.fn.count<number | string>("models.id").distinct().as("models"),
      eb.fn.count<number | string>("checkpoints.id").as("checkpoints"),
    ])
    .groupBy("models.entity")
    .execute();
  // Some databases return counts as text.
  return rows.map(({ entity, models, checkpoints }) => ({ entity, models: Number(models), checkpoints: Number(checkpoints) }));
}
