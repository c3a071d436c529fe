/** Sizes of checkpoints on disk. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { DataDirectory } from "../data-directory.ts";
import type { CheckpointRow, Store } from "../store/tables.ts";

/** Returns the file-system identity and the size of every file of a checkpoint. A file that is deleted meanwhile is left out. */
async function filesOf(
  directory: Pick<DataDirectory, "root">,
  { state_dir: stateDir }: Pick<CheckpointRow, "state_dir">,
): Promise<readonly (readonly [identity: string, bytes: number])[]> {
  if (stateDir === null) return [];
  const path = join(directory.root, stateDir);
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
export async function checkpointBytes(
  directory: Pick<DataDirectory, "root">,
  checkpoint: Pick<CheckpointRow, "state_dir">,
): Promise<number> {
  return (await filesOf(directory, checkpoint)).reduce((sum, [, bytes]) => sum + bytes, 0);
}

/** Returns the size of all checkpoints of a model in bytes. A file that several checkpoints share as a hard link counts once. */
export async function modelBytes(directory: Pick<DataDirectory, "root">, store: Store, modelId: string): Promise<number> {
  const rows = await store.selectFrom("checkpoints").select("state_dir").where("model_id", "=", modelId).execute();
  const files = new Map((await Promise.all(rows.map((row) => filesOf(directory, row)))).flat());
  return [...files.values()].reduce((sum, bytes) => sum + bytes, 0);
}
