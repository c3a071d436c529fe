/** Limits of entities, and the bytes that they store. */
import type { EntityLimits } from "../../base/schema/index.ts";
import { QuotaError } from "../../base/errors.ts";
import type { Digests } from "../disk/digests.ts";
import type { Store } from "./tables.ts";

/** Returns the limits of an entity; none for an entity without a row. */
export async function findEntityLimits(store: Store, entity: string): Promise<EntityLimits> {
  const row = await store.selectFrom("entities").select("limits").where("entity", "=", entity).executeTakeFirst();
  return row === undefined ? {} : (JSON.parse(row.limits) as EntityLimits);
}

/** Replaces the limits of an entity. */
export async function setEntityLimits(store: Store, entity: string, limits: EntityLimits): Promise<void> {
  const text = JSON.stringify(limits);
  await store
    .insertInto("entities")
    .values({ entity, limits: text })
    .onConflict((conflict) => conflict.column("entity").doUpdateSet({ limits: text }))
    .execute();
}

/** Returns the names of the entities that have keys, models, artifacts or limits, in order. */
export async function entityNames(store: Store): Promise<string[]> {
  const tables = ["api_keys", "models", "artifacts", "entities"] as const;
  const names = await Promise.all(
    tables.map((table) => store.selectFrom(table).select("entity").distinct().where("entity", "is not", null).execute()),
  );
  return [...new Set(names.flat().flatMap(({ entity }) => entity ?? []))].toSorted();
}

/** Returns the bytes of an entity's artifacts and checkpoints, as recorded with them. */
export async function storedBytesOf(store: Store, entity: string): Promise<number> {
  const { bytes: artifactBytes } = await store
    .selectFrom("artifact_files")
    .innerJoin("artifacts", "artifacts.id", "artifact_files.artifact_id")
    .select((eb) => eb.fn.sum<number | string | null>("size_bytes").as("bytes"))
    .where("artifacts.entity", "=", entity)
    .executeTakeFirstOrThrow();
  const checkpoints = await store
    .selectFrom("checkpoints")
    .innerJoin("models", "models.id", "checkpoints.model_id")
    .select("checkpoints.digests")
    .where("models.entity", "=", entity)
    .where("checkpoints.digests", "is not", null)
    .execute();
  let checkpointBytes = 0;
  for (const { digests } of checkpoints)
    for (const file of Object.values(JSON.parse(digests ?? "{}") as Digests)) checkpointBytes += file.size_bytes;
  return Number(artifactBytes ?? 0) + checkpointBytes;
}

/** Checks that an entity may store `addedBytes` more. @throws QuotaError `E_QUOTA` if it may not. */
export async function requireBytes(store: Store, entity: string, addedBytes: number): Promise<void> {
  const { stored_bytes: maxBytes = null } = await findEntityLimits(store, entity);
  if (maxBytes === null) return;
  const storedBytes = await storedBytesOf(store, entity);
  if (storedBytes + addedBytes <= maxBytes) return;
  throw new QuotaError(
    `Expected at most ${maxBytes} stored bytes of the entity '${entity}' (\`stored_bytes\`), got ${storedBytes} and ${addedBytes} more. Delete artifacts, files or checkpoints that are not needed, or ask an administrator for more`,
  );
}
