/** Cache of judges' answers on disk, so that a repeated run asks no question twice. */
import { createHash } from "node:crypto";
import { mkdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { replaceFile } from "../../base/util/replace-file.ts";
import { parseJson } from "../../base/util/values.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/**
 * Stored answers of judges, one file per answer at `<directory>/<first two digits of the key>/<key>.json`. A file is written atomically, so
 * that a reader never sees a part of it.
 */
export class AnswerCache {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Returns the stored text of an answer, see {@link cacheKey}; null if the cache has no valid file for it. */
  async read(key: string): Promise<string | null> {
    const stored = await readFile(this.#path(key), "utf8").catch((error: unknown) => {
      if (isMissingFile(error)) return "";
      throw error;
    });
    const text = (parseJson(stored) as { readonly text?: unknown } | null | undefined)?.text;
    return typeof text === "string" ? text : null;
  }

  /** Stores the text of an answer. */
  async write(key: string, model: string, text: string): Promise<void> {
    const path = this.#path(key);
    await mkdir(dirname(path), { recursive: true });
    await replaceFile(path, `${JSON.stringify({ model, text })}\n`);
  }

  /** Returns the file of an answer. The first two digits of the key name its folder, so that no folder has too many files. */
  #path(key: string): string {
    return join(this.#directory, key.slice(0, 2), `${key}.json`);
  }
}

/** Returns the cache key of a question: SHA-256 in hex over the JSON of everything that determines the answer. */
export function cacheKey(parts: unknown): string {
  // Seeds of 64 bits are bigints, which JSON does not have.
  const json = JSON.stringify(parts, (_, value: unknown) => (typeof value === "bigint" ? `${value}n` : value));
  return createHash("sha256").update(json).digest("hex");
}
