import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ConfigError, DataCorruptedError } from "../../errors.ts";
import { copyFileDurably, fillDirectory, FORMAT, MANIFEST, manifestSchema, type CopyResult } from "./copying.ts";

/**
 * Restores a data directory from a backup. Every file is verified while it is copied.
 *
 * @param backup - Directory written by {@link backUp}.
 * @param target - Data directory to create: empty or nonexistent.
 * @returns the absolute path of the data directory, and its number of files and bytes.
 * @throws ConfigError `E_CONFIG` if `backup` is not a backup, or has a newer format, or `target` is not empty.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` naming every missing or damaged file of the backup; nothing is left at `target`.
 */
export async function restore(backup: string, target: string): Promise<CopyResult> {
  const { files } = await readManifest(backup);
  return fillDirectory(target, "dataDir", async (temporary) => {
    const bad: string[] = [];
    let bytes = 0;
    for (const [storedPath, expected] of Object.entries(files)) {
      const found = await copyFileDurably(join(backup, storedPath), join(temporary, storedPath)).catch((error: NodeJS.ErrnoException) => {
        if (error.code === "ENOENT") return null;
        throw error;
      });
      if (found === null) bad.push(`${storedPath} is missing`);
      else if (found.sha256 !== expected.sha256) bad.push(`${storedPath} differs from its digest`);
      bytes += expected.size_bytes;
    }
    if (bad.length > 0) {
      throw new DataCorruptedError(
        `The backup '${resolve(backup)}' is damaged: ${bad.join(", ")}. Nothing was restored. Use another backup`,
      );
    }
    return { directory: resolve(target), files: Object.keys(files).length, bytes };
  });
}

async function readManifest(backup: string): Promise<{ readonly files: Readonly<Record<string, { sha256: string; size_bytes: number }>> }> {
  const path = join(backup, MANIFEST);
  let value: unknown;
  try {
    value = JSON.parse(await readFile(path, "utf8"));
  } catch (cause) {
    throw new ConfigError(`Expected a directory made by \`whetstone backup\`, found no readable ${MANIFEST} in '${resolve(backup)}'`, {
      cause,
      param: "backup",
    });
  }
  const parsed = manifestSchema.safeParse(value);
  if (!parsed.success || parsed.data.format !== FORMAT) {
    throw new ConfigError(
      `Expected '${path}' to list the files of a backup in format ${FORMAT}. Use the version that made it, or a newer one`,
      {
        param: "backup",
      },
    );
  }
  const outside = Object.keys(parsed.data.files).find(
    (storedPath) => storedPath.split(/[/\\]/u).includes("..") || resolve("/", storedPath) !== `/${storedPath}`,
  );
  if (outside !== undefined) {
    throw new ConfigError(`Expected '${path}' to list paths inside of the backup, found '${outside.slice(0, 200)}'`, { param: "backup" });
  }
  return parsed.data;
}
