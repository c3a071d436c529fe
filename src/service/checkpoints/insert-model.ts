/** Rows of a new model. */
import { randomUUID } from "node:crypto";
import type { QualifiedName } from "../common/names.ts";
import type { ModelRow, Store } from "../store/tables.ts";
import type { Origin } from "./origin.ts";

/** Model to insert, with its step 0 as prepared by `prepareOrigin`. */
interface InsertedModel {
  readonly id: string;
  readonly name: QualifiedName;
  readonly baseModel: string;
  readonly origin: Origin;
}

/** Inserts a model and its step 0, within the caller's transaction. */
export async function insertModel(store: Store, { id, name, baseModel, origin }: InsertedModel): Promise<ModelRow> {
  const now = new Date().toISOString();
  const { lora, seed, state_dir, optimizer_kind, metrics, lineage, digests } = origin;
  const row: ModelRow = {
    id,
    ...name,
    base_model: baseModel,
    lora: lora === null ? null : JSON.stringify(lora),
    seed,
    next_step: 1,
    created_at: now,
  };
  await store.insertInto("models").values(row).execute();
  await store
    .insertInto("checkpoints")
    .values({
      id: randomUUID(),
      model_id: row.id,
      step: 0,
      metrics,
      state_dir,
      optimizer_kind,
      created_at: now,
      lineage: JSON.stringify(lineage),
      pinned: 0,
      digests: digests === null ? null : JSON.stringify(digests),
    })
    .execute();
  return row;
}
