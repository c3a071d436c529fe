/** Sizes of checkpoints on disk. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { DataDirectory } from "../disk/data-directory.ts";
import { findStateDirectory } from "../disk/stored-path.ts";
import type { CheckpointRow, Store } from "../store/tables.ts";

type StateRow = Pick<CheckpointRow, "model_id" | "step" | "state_dir">;

/** Returns the file-system identity and the size of every file of a checkpoint. A file that is deleted meanwhile is left out. */
async function filesOf(
  directory: Pick<DataDirectory, "root">,
  row: StateRow,
): Promise<readonly (readonly [identity: string, bytes: number])[]> {
  const path = findStateDirectory(directory, row);
  if (path === null) return [];
  const names = await readdir(path).catch(() => []);
  const files = names.map(async (name) => {
    try {
      const { dev, ino, size } = await stat(join(path, name), { bigint: true });
      return [[`${dev}:${ino}`, Number(size)] as const];
    } catch {
      return [];
    }
  });
  return (await Promise.all(files)).flat();
}

/** Returns the total size of a checkpoint's files in bytes; 0 if it has no files. */
export async function checkpointBytes(directory: Pick<DataDirectory, "root">, checkpoint: StateRow): Promise<number> {
  return (await filesOf(directory, checkpoint)).reduce((sum, [, bytes]) => sum + bytes, 0);
}

/** Returns the size of all checkpoints of a model in bytes. A file that several checkpoints share as a hard link counts once. */
export async function modelBytes(directory: Pick<DataDirectory, "root">, store: Store, modelId: string): Promise<number> {
  const rows = await store.selectFrom("checkpoints").select(["model_id", "step", "state_dir"]).where("model_id", "=", modelId).execute();
  const files = new Map((await Promise.all(rows.map((row) => filesOf(directory, row)))).flat());
  return [...files.values()].reduce((sum, bytes) => sum + bytes, 0);
}
