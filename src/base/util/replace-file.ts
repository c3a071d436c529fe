/** Writing of a file that readers see either complete or not at all. */
import { randomUUID } from "node:crypto";
import { rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

/**
 * Writes a file through a temporary file in the same directory and a rename, so that a reader never sees a partial file.
 *
 * @param path - File to create or replace.
 * @param content - Text of the file.
 * @param signal - Stops the writing, which then rejects with the signal's reason and leaves the previous file.
 */
export async function replaceFile(path: string, content: string, signal?: AbortSignal): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${randomUUID()}.tmp`);
  try {
    await writeFile(temporary, content, { flag: "wx", flush: true, ...(signal === undefined ? {} : { signal }) });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw signal?.aborted ? signal.reason : error;
  }
}
