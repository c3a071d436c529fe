import { NotFoundError } from "../../errors.ts";
import type { QualifiedName } from "../names.ts";
import type { ModelRow, Store } from "./tables.ts";

/** @throws NotFoundError `E_NOT_FOUND`. */
export async function getModel(store: Store, id: string): Promise<ModelRow> {
  const row = await store.selectFrom("models").selectAll().where("id", "=", id.toLowerCase()).executeTakeFirst();
  if (row === undefined)
    throw new NotFoundError(`Model '${id}' does not exist. Create it with POST /v1/preview/models`, { param: "model_id" });
  return row;
}

export function findModel(store: Store, { entity, project, name }: QualifiedName): Promise<ModelRow | undefined> {
  return store
    .selectFrom("models")
    .selectAll()
    .where("entity", "=", entity)
    .where("project", "=", project)
    .where("name", "=", name)
    .executeTakeFirst();
}

/** Every model with the step of its newest checkpoint (null when all were deleted), in the order of creation. */
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
