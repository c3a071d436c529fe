/** Extraction of a downloaded tar archive to disk. */
import { randomUUID } from "node:crypto";
import { mkdir, readdir, rename, rm, rmdir } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ArgumentError, DataError, WhetstoneError } from "../../base/errors.ts";
import { artifactPath } from "../../base/schema/index.ts";

/**
 * Extracts a tar archive into a new or empty directory. All or nothing: files appear under their names only after the whole archive was
 * received.
 *
 * Only regular files and directories with relative paths without `..` are accepted, so that nothing is written outside the directory.
 *
 * @throws ArgumentError `E_ARGUMENT` if the directory contains files, or is a file.
 * @throws DataError `E_DATA` for any other kind of entry, or if the bytes are not a tar archive. Errors thrown by `bytes` are rethrown
 *   unchanged.
 */
export async function extractTar(bytes: AsyncIterable<Uint8Array>, directory: string): Promise<void> {
  const target = resolve(directory);
  await requireNewOrEmpty(target, directory);
  await mkdir(dirname(target), { recursive: true });
  const temporary = `${target}.tmp-${randomUUID()}`;
  try {
    await mkdir(temporary);
    // Imported lazily: most programs never download a checkpoint.
    const { unpackTar } = await import("modern-tar/fs");
    /** Error of the first entry that is not accepted; `unpackTar` may report another error in its place. */
    let refused: DataError | null = null;
    const filter = ({ name, type }: { readonly name: string; readonly type?: string | undefined }): boolean => {
      refused ??= refusalOf(name, type ?? "file");
      if (refused !== null) throw refused;
      return true;
    };
    try {
      await pipeline(Readable.from(bytes), unpackTar(temporary, { filter, strict: true, fmode: 0o644, dmode: 0o755 }));
    } catch (error) {
      if (refused !== null) throw refused;
      // Errors thrown by `bytes` pass unchanged; all others are reported as errors of the archive.
      if (WhetstoneError.isInstance(error) || !(error instanceof Error) || error.name === "AbortError") throw error;
      throw new DataError(`The archive cannot be extracted: ${error.message}`, { cause: error });
    }
    // Removes the empty directory, if there is one: not every platform renames over it.
    await rmdir(target).catch(() => undefined);
    await rename(temporary, target);
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

/**
 * @param target - Absolute path of the directory.
 * @param givenPath - Path as the caller wrote it, for the error.
 * @throws ArgumentError `E_ARGUMENT` if the directory contains files, or is a file.
 */
async function requireNewOrEmpty(target: string, givenPath: string): Promise<void> {
  const notEmptyError = (found: string) =>
    new ArgumentError(`Expected \`directory\` to be new or empty, '${givenPath}' ${found}`, { param: "directory" });
  let names: string[];
  try {
    names = await readdir(target);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return;
    throw code === "ENOTDIR" ? notEmptyError("is a file, or lies below one") : error;
  }
  if (names.length > 0) throw notEmptyError("holds files");
}

/** Returns the error of an entry that must not be extracted; null for any other entry. */
function refusalOf(name: string, type: string): DataError | null {
  if (type !== "file" && type !== "directory")
    return new DataError(`The archive holds a ${type}, '${name}': only files and directories are extracted`);
  const result = artifactPath.safeParse(type === "directory" ? name.replace(/\/$/u, "") : name);
  if (result.success) return null;
  return new DataError(`The archive holds '${name}', which ${result.error.issues[0]?.message ?? "is not a path inside it"}`);
}
