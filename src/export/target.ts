/** Outputs of an export, which appear at their path only when they are complete. */
import { randomUUID } from "node:crypto";
import { mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { ArgumentError } from "../base/errors.ts";
import { isMissingFile } from "../base/util/file-system-error.ts";

/**
 * Writes a file or a directory in a scratch directory next to its target, then renames it. A failure leaves the target as it was.
 *
 * @param path - Target; its parents are created.
 * @param options - `force`: replace what exists.
 * @param write - Writes the output to the path `output` inside of `scratch`; other files in `scratch` are deleted. Its result is returned.
 * @throws ArgumentError `E_ARGUMENT` if the target exists and is not an empty directory, without `force`.
 */
export async function writeTarget<T>(
  path: string,
  { force }: { readonly force: boolean },
  write: (scratch: string, output: string) => Promise<T>,
): Promise<T> {
  const target = resolve(path);
  if (!force) await requireFree(target, path);
  await mkdir(dirname(target), { recursive: true });
  const scratch = `${target}.tmp-${randomUUID()}`;
  try {
    await mkdir(scratch);
    const output = join(scratch, "output");
    const result = await write(scratch, output);
    // A directory cannot be renamed to one that has files.
    const replaced = join(scratch, "replaced");
    await rename(target, replaced).catch(unlessMissing);
    try {
      await rename(output, target);
    } catch (error) {
      await rename(replaced, target).catch(unlessMissing);
      throw error;
    }
    return result;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Requires that the target does not exist or is an empty directory. `label` is its path in the error message. */
async function requireFree(target: string, label: string): Promise<void> {
  const existing = await stat(target).catch(unlessMissing);
  if (existing === undefined || (existing.isDirectory() && (await readdir(target)).length === 0)) return;
  throw new ArgumentError(
    `Expected a new path or an empty directory, '${label}' ${existing.isDirectory() ? "holds files" : "exists"}; \`force\` (--force) replaces it`,
    { param: "path" },
  );
}

/** Handler of a rejection that ignores a missing file. */
function unlessMissing(error: unknown): undefined {
  if (!isMissingFile(error)) throw error;
}
