/** Checks of the paths of base models: directories in Hugging Face layout, and GGUF files. */
import { realpath, stat } from "node:fs/promises";
import { isAbsolute, join, relative } from "node:path";
import { ConfigError } from "../../../errors.ts";

/**
 * Checks that every base model is a directory or a file.
 *
 * @param baseModels - Paths by identifier.
 * @throws ConfigError `E_CONFIG` for the first path that is neither.
 */
export async function checkDirectories(baseModels: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, path] of Object.entries(baseModels)) {
    const entry = await stat(path).catch(() => null);
    if (entry?.isDirectory() === true || entry?.isFile() === true) continue;
    const found = entry === null ? "does not exist" : "is neither";
    throw new ConfigError(
      `Expected the base model "${name}" to be a directory in Hugging Face layout or a GGUF file, got ${path}, which ${found}`,
      {
        param: "baseModels",
      },
    );
  }
}

/** Returns the real path of a directory with a `config.json`, or of a file, below one of the roots; null for any other path. */
export async function allowedDirectory(path: string, allowedRoots: readonly string[]): Promise<string | null> {
  const directory = await realpath(path).catch(() => null);
  if (directory === null) return null;
  const roots = await Promise.all(allowedRoots.map((root) => realpath(root).catch(() => null)));
  const isAllowed = roots.some((root) => root !== null && isInside(root, directory));
  if (!isAllowed) return null;
  // GGUF files in caches have digests as names.
  const isModel = (await isFile(directory)) || (await isFile(join(directory, "config.json")));
  return isModel ? directory : null;
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
