/** Check of a data directory before a new database is created for it. */
import { readdir } from "node:fs/promises";
import { relative } from "node:path";
import type { DataDirectory } from "./data-directory.ts";
import { isTemporaryName } from "./files.ts";

/**
 * Explains why a data directory must not get a new database: the directory holds files that are meaningless without their database.
 *
 * @param options - `isPostgres`: whether the database is in Postgres, and not a file of the directory. @default false
 * @returns an error message with the possible remedies, or null for a directory without such files.
 */
export async function whyNotNewDatabase(
  directory: DataDirectory,
  { isPostgres = false }: { readonly isPostgres?: boolean | undefined } = {},
): Promise<string | null> {
  const folders = [directory.checkpoints, directory.jobs, directory.tokens, directory.blobs];
  const foldersWithFiles: string[] = [];
  for (const folder of folders) if (await hasFiles(folder)) foldersWithFiles.push(`'${relative(directory.root, folder)}'`);
  if (foldersWithFiles.length === 0) return null;
  if (isPostgres) {
    return (
      `The data directory '${directory.root}' has files in ${foldersWithFiles.join(", ")}, but the database has no tables of a service. Nothing was changed. ` +
      "Correct the address of the database, restore a backup into it with `whetstone restore --database`, or use another data directory. " +
      `To start without these files, move ${foldersWithFiles.join(", ")} to another place first`
    );
  }
  return (
    `The data directory '${directory.root}' has files in ${foldersWithFiles.join(", ")}, but its database whetstone.db is missing or empty. Nothing was changed. ` +
    "Put the database back (whetstone.db with whetstone.db-wal), make another data directory from a backup with `whetstone restore`, or use another data directory. " +
    `To start without these files, move ${foldersWithFiles.join(", ")} to another place first`
  );
}

/** Whether a directory has any complete file; false for a missing directory. */
async function hasFiles(path: string): Promise<boolean> {
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries.some((entry) => !entry.isDirectory() && !isTemporaryName(entry.name));
}
