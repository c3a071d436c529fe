/** Record of the storage that has the files of a service, if it is outside of the data directory. */
import { transact } from "./database.ts";
import { openConnection } from "./connection.ts";
import type { Store, StorageRow } from "./tables.ts";

/** Milliseconds to wait for a database that another connection has locked. */
const BUSY_TIMEOUT_MS = 5000;

/** Returns the storage of the files; undefined if the data directory is the storage. Also reads a database of an earlier version. */
export async function storageRow(store: Store): Promise<StorageRow | undefined> {
  const tables = await store.introspection.getTables();
  if (!tables.some(({ name }) => name === "storage")) return undefined;
  return store.selectFrom("storage").selectAll().executeTakeFirst();
}

/** Records the storage of the files. */
export function setStorage(store: Store, row: StorageRow): Promise<void> {
  return transact(store, async (transaction) => {
    await transaction.deleteFrom("storage").execute();
    await transaction.insertInto("storage").values(row).execute();
  });
}

/** Records in the database of a backup that its files are in its directory. */
export async function forgetStorage(path: string): Promise<void> {
  const connection = await openConnection(path, BUSY_TIMEOUT_MS);
  try {
    connection.exec("DELETE FROM storage");
  } finally {
    connection.close();
  }
}

/** Whether any row references stored files, or belongs to an unfinished job, which may have files without a record. */
export async function referencesFiles(store: Store): Promise<boolean> {
  const found = await Promise.all([
    store.selectFrom("checkpoints").select("id").where("state_dir", "is not", null).limit(1).executeTakeFirst(),
    store.selectFrom("artifact_files").select("sha256").limit(1).executeTakeFirst(),
    store
      .selectFrom("jobs")
      .select("id")
      .where((where) => where.or([where("digests", "is not", null), where("status", "in", ["queued", "running"])]))
      .limit(1)
      .executeTakeFirst(),
  ]);
  return found.some((row) => row !== undefined);
}
