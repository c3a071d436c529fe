/** Manifest of a backup: the digests of all its files. */
import { join, resolve } from "node:path";
import { z } from "zod";
import { ConfigError } from "../../base/errors.ts";
import { readRegularFile } from "../../base/util/regular-file.ts";
import { digestsSchema, type Digests } from "../disk/digests.ts";
import { remove } from "../disk/files.ts";

/** Name of the manifest. */
export const MANIFEST = "backup.json";
/** Version of the backup format. */
export const FORMAT = 1;
/** Name of the database, in a backup as in a data directory. */
export const DATABASE = "whetstone.db";
/** Name of the file with the key of the service. */
export const KEY_FILE = "api-key";
/** Max size of a manifest in bytes: more than a million files. */
const MAX_MANIFEST_BYTES = 256 * 1024 * 1024;

/** Folders that a backup may contain. */
const FOLDERS = ["checkpoints", "jobs", "tokens", "artifacts", "hub"];
/** Files that a backup may contain besides its manifest. */
const FILES = [DATABASE, KEY_FILE];

/** Contents of {@link MANIFEST}. */
const manifestSchema = z.object({
  format: z.literal(FORMAT),
  created_at: z.string(),
  /** Digests by path, relative to the backup and with `/` as the separator. */
  files: digestsSchema.refine((files) => Object.hasOwn(files, DATABASE) && Object.keys(files).every(isBackupPath)),
});

/** Names that a backup writes into its directory, the manifest included. */
export const BACKUP_NAMES: readonly string[] = [...FOLDERS, ...FILES, MANIFEST];

/** Whether a backup may contain a file with this path. */
function isBackupPath(path: string): boolean {
  return FILES.includes(path) || FOLDERS.some((folder) => path.startsWith(`${folder}/`));
}

/**
 * Reads the manifest of a backup.
 *
 * @returns the digests of its files by path, relative to the backup.
 * @throws ConfigError `E_CONFIG` without a manifest, and for one of another format, without a database, or with a path that a backup does
 *   not contain.
 */
export async function readManifest(backup: string): Promise<Digests> {
  const path = join(backup, MANIFEST);
  let value: unknown;
  try {
    value = JSON.parse(await readRegularFile(path, { maxBytes: MAX_MANIFEST_BYTES }));
  } catch (cause) {
    throw new ConfigError(`Expected a directory made by \`whetstone backup\`, found no readable ${MANIFEST} in '${resolve(backup)}'`, {
      cause,
      param: "backup",
    });
  }
  const parsed = manifestSchema.safeParse(value);
  if (parsed.success) return parsed.data.files;
  throw new ConfigError(
    `Expected '${path}' to list the files of a backup in format ${FORMAT}, a database among them, all inside of the backup. Use the version that made it or a newer one, or another backup`,
    { param: "backup" },
  );
}

/** Removes the manifest from a data directory that was a backup: the service that starts on it changes its files. */
export function removeManifest(root: string): Promise<void> {
  return remove(join(root, MANIFEST));
}
