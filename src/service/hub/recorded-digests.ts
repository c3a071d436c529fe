/**
 * Digests of fetched base models, stored in `digests/<commit>.json` next to `snapshots/<commit>/` in the layout of the Hugging Face cache.
 */
import { mkdir, readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { DataCorruptedError, DataError } from "../../base/errors.ts";
import { MAX_INDEX_BYTES, readRegularFile } from "../../base/util/regular-file.ts";
import { writeDurably } from "../disk/files.ts";
import { parseDigestsText, type Digests } from "../disk/digests.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Folder with the digests of a base model. */
const DIGESTS_FOLDER = "digests";

/**
 * Records the digests of a snapshot by file name. Call it after the files are written, so that a recorded snapshot is complete.
 *
 * @param modelFolder - Folder of the base model in the cache.
 */
export async function recordSnapshot(modelFolder: string, commit: string, digests: Digests): Promise<void> {
  await mkdir(join(modelFolder, DIGESTS_FOLDER), { recursive: true, mode: 0o700 });
  await writeDurably(join(modelFolder, DIGESTS_FOLDER, `${commit}.json`), `${JSON.stringify(digests, null, 1)}\n`);
}

/**
 * Returns the digests of a snapshot by file name; null for a snapshot fetched by another program, or before digests were recorded.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that does not contain digests of files below the snapshot.
 */
export async function snapshotDigests(modelFolder: string, commit: string): Promise<Digests | null> {
  let text: string;
  try {
    text = await readRegularFile(join(modelFolder, DIGESTS_FOLDER, `${commit}.json`), { maxBytes: MAX_INDEX_BYTES });
  } catch (error) {
    if (isMissingFile(error)) return null;
    if (error instanceof DataError) throw damagedError(modelFolder, commit, error);
    throw error;
  }
  const digests = parseDigestsText(text);
  if (digests !== null) return digests;
  throw damagedError(modelFolder, commit);
}

/** Returns the error of a damaged file of digests. */
function damagedError(modelFolder: string, commit: string, cause?: unknown): DataCorruptedError {
  return new DataCorruptedError(
    `The digests of the base model in '${basename(modelFolder)}' at ${commit} are damaged. Delete its folder, and it is fetched again`,
    { cause },
  );
}

/** Snapshot with recorded digests. */
export interface RecordedSnapshot {
  /** Name of the base model, `owner/name`. */
  readonly name: string;
  /** Folder of the base model in the cache, such as `models--owner--name`. */
  readonly folder: string;
  readonly commit: string;
  /** Digests by file name. */
  readonly digests: Digests;
}

/** Lists the snapshots of a cache that have recorded digests. */
export async function recordedSnapshots(cacheDir: string): Promise<RecordedSnapshot[]> {
  const folders = (await readdir(cacheDir).catch(() => [])).filter((folder) => folder.startsWith("models--"));
  const snapshots: RecordedSnapshot[] = [];
  for (const folder of folders) {
    for (const file of await readdir(join(cacheDir, folder, DIGESTS_FOLDER)).catch(() => [])) {
      const commit = /^([0-9a-f]{40})\.json$/u.exec(file)?.[1];
      if (commit === undefined) continue;
      const digests = await snapshotDigests(join(cacheDir, folder), commit);
      if (digests !== null) snapshots.push({ name: folder.slice("models--".length).replace("--", "/"), folder, commit, digests });
    }
  }
  return snapshots;
}
