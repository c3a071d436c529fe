/** Verification of stored files against their digests. */
import { closing } from "./files.ts";
import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { DataCorruptedError, DataError } from "../../base/errors.ts";
import { Lru, remember } from "../../base/util/lru.ts";
import { openRegularFile } from "../../base/util/regular-file.ts";
import { digestOpenFile, piecesOf, type FileDigest } from "./digests.ts";
import type { ServiceLogger } from "../common/logger.ts";

/** Max number of files with remembered digests. */
const MAX_REMEMBERED = 10_000;

/** Last sentence of an error message, unless the caller has another. */
const REMEDY = "Restore it from a backup, or delete what needs it";

/** Function that reads an open file of a saved state, by its name, and verifies it meanwhile; see {@link Verifier.read}. */
export type ReadVerified = (name: string, file: FileHandle) => AsyncIterable<Uint8Array>;

/** Place of a stored file. */
export interface StoredPath {
  /** Directory that the file must lie in, also after following links. */
  readonly root: string;
  /** Path of the file, relative to `root`. */
  readonly storedPath: string;
}

/** Parts of the message about a damaged file. */
interface Damage {
  readonly path: string;
  readonly expected: FileDigest;
  readonly subject: string;
  /** Last sentence of the error message. */
  readonly remedy: string;
}

/** Verifier of files against their digests. Logs the path of each damaged file. */
export class Verifier {
  readonly #logger: Pick<ServiceLogger, "error">;
  /** Digests of files as they were last read, by {@link identityOf}. */
  readonly #digests = new Lru<string, Promise<FileDigest>>({ maxEntries: MAX_REMEMBERED });

  constructor(logger: Pick<ServiceLogger, "error">) {
    this.#logger = logger;
  }

  /**
   * Verifies one file. A file is read once per process as long as its inode, size and modification time stay the same.
   *
   * @param expected - Digest of the file.
   * @param subject - Name of the file for the error message, without its path.
   * @param remedy - Last sentence of the error message. @default to restore the file or delete what needs it
   * @throws DataCorruptedError `E_DATA_CORRUPTED` if the file is missing, differs or is not a regular file in `root`.
   */
  async check({ root, storedPath }: StoredPath, expected: FileDigest, subject: string, remedy = REMEDY): Promise<void> {
    const damage = { path: join(root, storedPath), expected, subject, remedy };
    let foundDigest: FileDigest;
    try {
      foundDigest = await this.#digestOf({ root, storedPath });
    } catch (cause) {
      const { code = "" } = cause as NodeJS.ErrnoException;
      if (cause instanceof DataError) this.#fail(damage, cause.message, cause);
      this.#fail(damage, code === "ENOENT" ? "the file is missing" : `the file cannot be read (${code})`, cause);
    }
    this.#compare(damage, foundDigest);
  }

  /** Whether a file exists and matches a digest; reads it like {@link check}. */
  async isIntact(place: StoredPath, expected: FileDigest): Promise<boolean> {
    const foundDigest = await this.#digestOf(place).catch(() => null);
    return foundDigest !== null && isSame(foundDigest, expected);
  }

  /** Records the digest of a file whose bytes were verified while it was written. */
  async record({ root, storedPath }: StoredPath, digest: FileDigest): Promise<void> {
    const identity = await closing(await openRegularFile(join(root, storedPath), root), identityOf);
    void this.#digests.set(identity, Promise.resolve(digest));
  }

  /**
   * Reads an open file from its start, also if it was verified before. Yields the last piece only after the whole contents match the
   * digest, so a reader of a damaged file never receives all of its bytes. The computed digest is remembered for {@link check}. The file
   * stays open.
   *
   * @param expected - Digest of the file.
   * @param subject - Name of the file for the error message, without its path.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` if the contents differ or cannot be read.
   */
  async *read(file: FileHandle, { root, storedPath }: StoredPath, expected: FileDigest, subject: string): AsyncGenerator<Buffer, void> {
    const damage = { path: join(root, storedPath), expected, subject, remedy: REMEDY };
    const identity = await identityOf(file);
    const hash = createHash("sha256");
    let size = 0;
    let pendingPiece: Buffer | null = null;
    try {
      for await (const piece of piecesOf(file)) {
        hash.update(piece);
        size += piece.byteLength;
        // Longer than expected: the comparison below fails.
        if (size > expected.size_bytes) break;
        if (pendingPiece !== null) yield pendingPiece;
        pendingPiece = piece;
      }
    } catch (cause) {
      this.#fail(damage, `the file cannot be read (${(cause as NodeJS.ErrnoException).code ?? ""})`, cause);
    }
    const foundDigest = { sha256: hash.digest("hex"), size_bytes: size };
    void this.#digests.set(identity, Promise.resolve(foundDigest));
    this.#compare(damage, foundDigest);
    if (pendingPiece !== null) yield pendingPiece;
  }

  /** Returns the digest of a file, which is read once as long as it stays the same. */
  async #digestOf({ root, storedPath }: StoredPath): Promise<FileDigest> {
    return closing(await openRegularFile(join(root, storedPath), root), async (file) =>
      remember(this.#digests, await identityOf(file), () => digestOpenFile(file)),
    );
  }

  /** Throws the error of a damaged file if the found digest differs from the expected one. */
  #compare(damage: Damage, foundDigest: FileDigest): void {
    const { expected } = damage;
    if (foundDigest.size_bytes !== expected.size_bytes) {
      this.#fail(damage, `expected ${expected.size_bytes} bytes, found ${foundDigest.size_bytes}`);
    }
    if (foundDigest.sha256 !== expected.sha256) this.#fail(damage, "its bytes differ from its SHA-256 digest");
  }

  /** Logs the damage and throws its error. */
  #fail({ path, expected, subject, remedy }: Damage, finding: string, cause?: unknown): never {
    this.#logger.error("A stored file is damaged", { path, finding, expected });
    throw new DataCorruptedError(`${subject} is damaged: ${finding}. ${remedy}`, { cause });
  }
}

/** Whether two digests are equal. */
function isSame(foundDigest: FileDigest, expected: FileDigest): boolean {
  return foundDigest.sha256 === expected.sha256 && foundDigest.size_bytes === expected.size_bytes;
}

/** Returns a key that changes when a file is replaced or written to. */
async function identityOf(file: FileHandle): Promise<string> {
  const { dev, ino, size, mtimeNs } = await file.stat({ bigint: true });
  return `${dev} ${ino} ${size} ${mtimeNs}`;
}
