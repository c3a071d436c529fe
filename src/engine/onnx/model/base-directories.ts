/** Checks of the paths of base models: directories in Hugging Face layout, and GGUF files. */
import { open, realpath, stat } from "node:fs/promises";
import { isAbsolute, join, relative } from "node:path";
import { ConfigError } from "../../../base/errors.ts";

/**
 * Checks that every base model is a directory or a GGUF file.
 *
 * @param baseModels - Paths by identifier.
 * @throws ConfigError `E_CONFIG` for the first path that is neither.
 */
export async function checkDirectories(baseModels: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, path] of Object.entries(baseModels)) {
    const problem = await whyNotBase(path);
    if (problem === null) continue;
    throw new ConfigError(
      `Expected the base model "${name}" to be a directory in Hugging Face layout or a GGUF file, got ${path}, which ${problem}`,
      { param: "baseModels" },
    );
  }
}

/** First bytes of a GGUF file. */
const GGUF_MAGIC = "GGUF";

/** Returns the reason why a path cannot be a base model, as predicate of a sentence about the path; null if it can. */
async function whyNotBase(path: string): Promise<string | null> {
  const entry = await stat(path).catch(() => null);
  if (entry === null) return "does not exist";
  if (entry.isDirectory()) return null;
  if (!entry.isFile()) return "is neither";
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(GGUF_MAGIC.length), 0, GGUF_MAGIC.length, 0);
    return buffer.toString("latin1", 0, bytesRead) === GGUF_MAGIC ? null : "is a file of another format";
  } finally {
    await file.close();
  }
}

/** Returns the real path of a directory with a `config.json`, or of a file, below one of the roots; null for any other path. */
export async function allowedDirectory(path: string, allowedRoots: readonly string[]): Promise<string | null> {
  // Real paths, so that a symbolic link cannot lead out of the roots.
  const realPath = await realpath(path).catch(() => null);
  if (realPath === null) return null;
  const roots = await Promise.all(allowedRoots.map((root) => realpath(root).catch(() => null)));
  const isAllowed = roots.some((root) => root !== null && isInside(root, realPath));
  if (!isAllowed) return null;
  // Any file may be a GGUF file: in caches, their names are digests.
  const isModel = (await isFile(realPath)) || (await isFile(join(realPath, "config.json")));
  return isModel ? realPath : null;
}

/** Whether a path lies below a root. */
function isInside(root: string, path: string): boolean {
  const relativePath = relative(root, path);
  return relativePath !== "" && !relativePath.startsWith("..") && !isAbsolute(relativePath);
}

/** Whether a path is a regular file. */
async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (entry) => entry.isFile(),
    () => false,
  );
}
