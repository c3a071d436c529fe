import { stat } from "node:fs/promises";
import { DataCorruptedError } from "../errors.ts";
import { Lru, remember } from "../util/lru.ts";
import { digestFile, type FileDigest } from "./digests.ts";
import type { ServiceLogger } from "./logger.ts";

/** Max number of verified files that are remembered. */
const MAX_REMEMBERED = 10_000;

const REMEDY = "Restore it from a backup, or delete what needs it";

/** Verifier of files against their digests. Logs the path of each damaged file. */
export class Verifier {
  readonly #logger: Pick<ServiceLogger, "error">;
  readonly #verified = new Lru<string, Promise<FileDigest>>({ maxEntries: MAX_REMEMBERED });

  constructor(logger: Pick<ServiceLogger, "error">) {
    this.#logger = logger;
  }

  /**
   * Verifies one file. A file is read once per process as long as its inode, size and modification time stay the same.
   *
   * @param subject - Name of the file for the error message, without its path.
   * @param remedy - Last sentence of the error message. @default to restore the file or delete what needs it
   * @throws DataCorruptedError `E_DATA_CORRUPTED` if the file is missing or differs.
   */
  async check(path: string, expected: FileDigest, subject: string, remedy = REMEDY): Promise<void> {
    const fail = (finding: string, cause?: unknown) => {
      this.#logger.error("A stored file is damaged", { path, finding, expected });
      throw new DataCorruptedError(`${subject} is damaged: ${finding}. ${remedy}`, { cause });
    };
    let found: FileDigest | null = null;
    try {
      const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
      found = await remember(this.#verified, `${dev} ${ino} ${size} ${mtimeNs}`, () => digestFile(path));
    } catch (cause) {
      const { code = "" } = cause as NodeJS.ErrnoException;
      fail(code === "ENOENT" ? "the file is missing" : `the file cannot be read (${code})`, cause);
    }
    if (found?.size_bytes !== expected.size_bytes) fail(`expected ${expected.size_bytes} bytes, found ${found?.size_bytes}`);
    if (found?.sha256 !== expected.sha256) fail("its bytes differ from its SHA-256 digest");
  }
}
