import { join, resolve } from "node:path";
import { DataCorruptedError, DataError } from "../../base/errors.ts";
import { dataDirectoryAt } from "../disk/data-directory.ts";
import type { Digests } from "../disk/digests.ts";
import { remove, syncFile } from "../disk/files.ts";
import { markSnapshot, openStoreReadOnly } from "../store/database.ts";
import { copyFileDurably, fillDirectory, type CopyResult } from "./copying.ts";
import { storedFiles } from "./inventory.ts";
import { DATABASE, MANIFEST, readManifest } from "./manifest.ts";

/**
 * Restores a data directory from a backup. Every file is verified while it is copied, against the manifest and against the database of the
 * backup, which must not reference any other file. Nothing outside of the backup is read, also not through links.
 *
 * @param backup - Directory written by {@link backUp}.
 * @param target - Data directory to create: empty or nonexistent.
 * @returns the absolute path of the data directory, and its number of files and bytes.
 * @throws ConfigError `E_CONFIG` if `backup` is not a backup, or has a newer format, or `target` is not empty.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` naming every missing or damaged file of the backup; nothing is left at `target`.
 */
export async function restore(backup: string, target: string): Promise<CopyResult> {
  const files = await readManifest(backup);
  return fillDirectory(target, "dataDir", async (temporary) => {
    const bad: string[] = [];
    let bytes = 0;
    for (const [storedPath, expected] of Object.entries(files)) {
      const found = await copyFileDurably(backup, storedPath, temporary).catch(findingOf);
      if (typeof found === "string") bad.push(`${storedPath} ${found}`);
      else if (found.sha256 !== expected.sha256) bad.push(`${storedPath} differs from its digest`);
      else bytes += found.size_bytes;
    }
    if (bad.length === 0) bad.push(...(await unlisted(temporary, files)));
    if (bad.length > 0) {
      throw new DataCorruptedError(
        `The backup '${resolve(backup)}' is damaged: ${bad.join(", ")}. Nothing was restored. Use another backup`,
      );
    }
    return { directory: resolve(target), files: Object.keys(files).length, bytes };
  });
}

/** Codes of system errors that a file or a directory in place of another causes. */
const MISPLACED = ["ENOTDIR", "EISDIR", "EEXIST", "ELOOP", "ENAMETOOLONG"];

/** Returns the finding about a file that cannot be copied. @throws any error that is not caused by the backup. */
function findingOf(error: unknown): string {
  const { code = "" } = error as NodeJS.ErrnoException;
  if (code === "ENOENT") return "is missing";
  if (error instanceof DataError || MISPLACED.includes(code)) return "is not a regular file of the backup";
  throw error;
}

/** Finds files that the restored database references and that the manifest lacks, or lists with another digest. */
async function unlisted(root: string, files: Digests): Promise<string[]> {
  const database = join(root, DATABASE);
  const store = await openStoreReadOnly(database);
  const findings: string[] = [];
  try {
    for (const { path, subject, digest } of (await storedFiles(store, dataDirectoryAt(root))).values()) {
      const listed = Object.hasOwn(files, path) ? files[path] : undefined;
      if (listed === undefined) findings.push(`${MANIFEST} does not list ${path} (${subject})`);
      else if (digest !== null && digest.sha256 !== listed.sha256) findings.push(`${path} differs from its digest (${subject})`);
    }
  } finally {
    await store.destroy();
    // Reading creates them for a database that was in WAL mode.
    for (const suffix of ["-wal", "-shm", "-journal"]) await remove(database + suffix);
  }
  if (findings.length === 0) {
    await markSnapshot(database, false);
    await syncFile(database);
  }
  return findings;
}
