/** Checks of the directories of base models. */
import { realpath, stat } from "node:fs/promises";
import { isAbsolute, join, relative } from "node:path";
import { ConfigError } from "../../../errors.ts";

/**
 * Checks that every base model is a directory.
 *
 * @param baseModels - Directories by identifier.
 * @throws ConfigError `E_CONFIG` for the first path that is not a directory.
 */
export async function checkDirectories(baseModels: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, path] of Object.entries(baseModels)) {
    const entry = await stat(path).catch(() => null);
    if (entry?.isDirectory() === true) continue;
    const found = entry === null ? "does not exist" : "is not a directory";
    throw new ConfigError(`Expected the base model "${name}" to be a directory in Hugging Face layout, got ${path}, which ${found}`, {
      param: "baseModels",
    });
  }
}

/** Returns the real path of a directory with a `config.json` below one of the roots; null for any other path. */
export async function allowedDirectory(path: string, allowedRoots: readonly string[]): Promise<string | null> {
  const directory = await realpath(path).catch(() => null);
  if (directory === null) return null;
  const roots = await Promise.all(allowedRoots.map((root) => realpath(root).catch(() => null)));
  const isAllowed = roots.some((root) => root !== null && isInside(root, directory));
  return isAllowed && (await isFile(join(directory, "config.json"))) ? directory : null;
}

function isInside(root: string, path: string): boolean {
  const way = relative(root, path);
  return way !== "" && !way.startsWith("..") && !isAbsolute(way);
}

async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (entry) => entry.isFile(),
    () => false,
  );
}
