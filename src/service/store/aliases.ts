/** Additional names of checkpoints (aliases): `ft:…` of fine-tuned models, and `ft:…:ckpt-step-N` of their checkpoints. */
import type { CheckpointAliasRow, CheckpointRow, ModelRow, Store } from "./tables.ts";

/** Whether a model name has the form of an alias, and not of a base model or a path. */
export function isAlias(name: string): boolean {
  return name.startsWith("ft:");
}

/** Returns the checkpoint with an alias and its model; undefined for a name that is not an alias of a visible model. */
export async function findAliased(
  store: Store,
  name: string,
): Promise<{ readonly model: ModelRow; readonly checkpoint: CheckpointRow } | undefined> {
  if (!isAlias(name)) return undefined;
  const checkpoint = await store
    .selectFrom("checkpoint_aliases")
    .innerJoin("checkpoints", "checkpoints.id", "checkpoint_aliases.checkpoint_id")
    .selectAll("checkpoints")
    .where("checkpoint_aliases.name", "=", name)
    .executeTakeFirst();
  if (checkpoint === undefined) return undefined;
  const model = await store.selectFrom("models").selectAll().where("id", "=", checkpoint.model_id).executeTakeFirst();
  return model === undefined ? undefined : { model, checkpoint };
}

/** Alias with its checkpoint and model. */
export interface ListedAlias extends CheckpointAliasRow {
  readonly model_id: string;
  readonly step: number;
  readonly entity: string;
  readonly project: string;
  readonly model_name: string;
  readonly base_model: string;
  readonly created_at: string;
  /** Metrics of the checkpoint as JSON. */
  readonly metrics: string;
}

/** Selects the aliases with their checkpoints and models. */
function selectAliases(store: Store) {
  return store
    .selectFrom("checkpoint_aliases")
    .innerJoin("checkpoints", "checkpoints.id", "checkpoint_aliases.checkpoint_id")
    .innerJoin("models", "models.id", "checkpoints.model_id")
    .selectAll("checkpoint_aliases")
    .select(["checkpoints.model_id", "checkpoints.step", "checkpoints.created_at", "checkpoints.metrics"])
    .select(["models.entity", "models.project", "models.name as model_name", "models.base_model"]);
}

/** Lists the aliases of all checkpoints by the checkpoint's time of creation, then by name: the name of the model before the longer ones. */
export function listAliases(store: Store): Promise<ListedAlias[]> {
  return selectAliases(store).orderBy("checkpoints.created_at").orderBy("checkpoint_aliases.name").execute();
}

/** Lists the checkpoints of a job by their aliases, newest first. The name of the final model is not among them. */
export function checkpointsOfJob(store: Store, jobId: string): Promise<ListedAlias[]> {
  return selectAliases(store)
    .where("checkpoint_aliases.job_id", "=", jobId)
    .where("checkpoint_aliases.job_step", "is not", null)
    .orderBy("checkpoint_aliases.job_step", "desc")
    .execute();
}
