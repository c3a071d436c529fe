/** Sizes of checkpoints, for answers and for the budget of checkpoints. */
import { readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { OPTIMIZER_FILE } from "../../engine/port.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { digestsOfCheckpoint, findStoredState } from "../disk/stored-path.ts";
import type { Storage } from "../storage/storage.ts";
import type { CheckpointRow, Store } from "../store/tables.ts";

/** Columns that determine the files of a checkpoint. */
type StateRow = Pick<CheckpointRow, "model_id" | "step" | "state_dir" | "optimizer_kind" | "digests">;

/** Identity of a file, see {@link filesOf}, and its size. */
type FileSize = readonly [identity: string, bytes: number];

/** Parts of the service that sizes are determined with. */
interface SizeContext {
  readonly directory: Pick<DataDirectory, "root">;
  readonly storage: Pick<Storage, "remote">;
}

/** Returns the total size of a checkpoint's files in bytes; 0 if it has no files. */
export async function checkpointBytes(context: SizeContext, checkpoint: StateRow): Promise<number> {
  return (await filesOf(context, checkpoint)).reduce((sum, [, bytes]) => sum + bytes, 0);
}

/** Returns the size of all checkpoints of a model in bytes. A file that several checkpoints share as a hard link counts once. */
export async function modelBytes(context: SizeContext & { readonly store: Store }, modelId: string): Promise<number> {
  const columns = ["model_id", "step", "state_dir", "optimizer_kind", "digests"] as const;
  const rows = await context.store.selectFrom("checkpoints").select(columns).where("model_id", "=", modelId).execute();
  const filesPerCheckpoint = await Promise.all(rows.map((row) => filesOf(context, row)));
  const bytesByIdentity = new Map(filesPerCheckpoint.flat());
  return [...bytesByIdentity.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/**
 * Returns every file of a checkpoint. A file that is deleted meanwhile is left out. The identity of a file on disk is its device and inode,
 * which hard links share; with a remote storage it is the path.
 */
async function filesOf({ directory, storage }: SizeContext, row: StateRow): Promise<readonly FileSize[]> {
  const storedPath = findStoredState(row);
  if (storedPath === null) return [];
  // With a remote storage, only some of the files may be on disk.
  if (storage.remote !== null) return recordedFiles(row);
  const path = join(directory.root, storedPath);
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

/** Returns the recorded files of a checkpoint, without a dropped optimizer state. */
function recordedFiles(row: StateRow): readonly FileSize[] {
  const isKept = (path: string) => row.optimizer_kind !== null || basename(path) !== OPTIMIZER_FILE;
  return Object.entries(digestsOfCheckpoint(row) ?? {})
    .filter(([path]) => isKept(path))
    .map(([path, { size_bytes: bytes }]) => [path, bytes] as const);
}
