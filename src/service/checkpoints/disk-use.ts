/** Sizes of checkpoints. */
import { readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { OPTIMIZER_FILE } from "../../engine/port.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { digestsOfCheckpoint, findStoredState } from "../disk/stored-path.ts";
import type { Storage } from "../storage/storage.ts";
import type { CheckpointRow, Store } from "../store/tables.ts";

type StateRow = Pick<CheckpointRow, "model_id" | "step" | "state_dir" | "optimizer_kind" | "digests">;

/** Parts of the service that sizes are determined with. */
interface SizeContext {
  readonly directory: Pick<DataDirectory, "root">;
  readonly storage: Pick<Storage, "remote">;
}

/** Returns the identity and the size of every file of a checkpoint. A file that is deleted meanwhile is left out. */
async function filesOf(
  { directory, storage }: SizeContext,
  row: StateRow,
): Promise<readonly (readonly [identity: string, bytes: number])[]> {
  const storedPath = findStoredState(row);
  if (storedPath === null) return [];
  // Only some of the files may be on disk.
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
function recordedFiles(row: StateRow): readonly (readonly [path: string, bytes: number])[] {
  const kept = ([path]: readonly [string, unknown]) => row.optimizer_kind !== null || basename(path) !== OPTIMIZER_FILE;
  return Object.entries(digestsOfCheckpoint(row) ?? {})
    .filter(kept)
    .map(([path, { size_bytes: bytes }]) => [path, bytes] as const);
}

/** Returns the total size of a checkpoint's files in bytes; 0 if it has no files. */
export async function checkpointBytes(context: SizeContext, checkpoint: StateRow): Promise<number> {
  return (await filesOf(context, checkpoint)).reduce((sum, [, bytes]) => sum + bytes, 0);
}

/** Returns the size of all checkpoints of a model in bytes. A file that several checkpoints share as a hard link counts once. */
export async function modelBytes(context: SizeContext & { readonly store: Store }, modelId: string): Promise<number> {
  const columns = ["model_id", "step", "state_dir", "optimizer_kind", "digests"] as const;
  const rows = await context.store.selectFrom("checkpoints").select(columns).where("model_id", "=", modelId).execute();
  const files = new Map((await Promise.all(rows.map((row) => filesOf(context, row)))).flat());
  return [...files.values()].reduce((sum, bytes) => sum + bytes, 0);
}
