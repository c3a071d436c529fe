/** Verification that the contents of stored files match their recorded digests. */
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

/** Default of the last sentence of an error message. */
const DEFAULT_REMEDY = "Restore it from a backup, or delete what needs it";

/**
 * Reads an open file of a saved state and verifies the bytes as {@link Verifier.read} does.
 *
 * `name` is the file's name in the directory of the state, under which its digest is recorded; a file without a recorded digest is not
 * verified.
 */
export type ReadVerified = (name: string, file: FileHandle) => AsyncIterable<Uint8Array>;

/** Location of a stored file. */
export interface StoredPath {
  /** Directory that the file must lie in, also after following links. */
  readonly root: string;
  /** Path of the file, relative to `root`. */
  readonly storedPath: string;
}

/** File to verify, with its texts for the error message. */
interface CheckedFile {
  /** Path for the log; error messages do not contain it. */
  readonly path: string;
  readonly expected: FileDigest;
  /** Name of the file in the error message. */
  readonly subject: string;
  /** Last sentence of the error message. */
  readonly remedy: string;
}

/** Verifies files against their digests. {@link check}, {@link open} and {@link read} log the path of a damaged file. */
export class Verifier {
  readonly #logger: Pick<ServiceLogger, "error">;
  /** Digests computed from whole files, by {@link identityOf}. */
  readonly #digests = new Lru<string, Promise<FileDigest>>({ maxEntries: MAX_REMEMBERED });

  constructor(logger: Pick<ServiceLogger, "error">) {
    this.#logger = logger;
  }

  /**
   * Verifies one file. Reads the file only if the digest of its device, inode, size and modification time is not among the last
   * {@link MAX_REMEMBERED} digests that this verifier computed or recorded.
   *
   * @param expected - Digest of the file.
   * @param subject - Name of the file for the error message, without its path.
   * @param remedy - Last sentence of the error message. @default "Restore it from a backup, or delete what needs it"
   * @throws DataCorruptedError `E_DATA_CORRUPTED` if the file is missing, unreadable or not a regular file in `root`, or has another digest.
   */
  async check({ root, storedPath }: StoredPath, expected: FileDigest, subject: string, remedy = DEFAULT_REMEDY): Promise<void> {
    const checkedFile = { path: join(root, storedPath), expected, subject, remedy };
    let foundDigest: FileDigest;
    try {
      foundDigest = await this.#digestOf({ root, storedPath });
    } catch (cause) {
      this.#fail(checkedFile, findingOf(cause), cause);
    }
    this.#compare(checkedFile, foundDigest);
  }

  /** Whether a file can be read and matches a digest. Uses remembered digests as {@link check} does; logs nothing. */
  async isIntact(location: StoredPath, expected: FileDigest): Promise<boolean> {
    const foundDigest = await this.#digestOf(location).catch(() => null);
    return foundDigest !== null && isSame(foundDigest, expected);
  }

  /** Remembers the digest of a file that was computed while the file was written, so that {@link check} does not read the file. */
  async record({ root, storedPath }: StoredPath, digest: FileDigest): Promise<void> {
    const identity = await closing(await openRegularFile(join(root, storedPath), root), identityOf);
    void this.#digests.set(identity, Promise.resolve(digest));
  }

  /**
   * Opens a file for {@link read}.
   *
   * @param expected - Digest of the file.
   * @param subject - Name of the file for the error message, without its path.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` if it is not a regular file in `root`.
   * @throws the system's error, such as `ENOENT`, if it cannot be opened.
   */
  async open({ root, storedPath }: StoredPath, expected: FileDigest, subject: string): Promise<FileHandle> {
    const path = join(root, storedPath);
    try {
      return await openRegularFile(path, root);
    } catch (cause) {
      if (cause instanceof DataError) this.#fail({ path, expected, subject, remedy: DEFAULT_REMEDY }, findingOf(cause), cause);
      throw cause;
    }
  }

  /**
   * Reads an open file from its start, even if its digest is remembered. Yields the last piece only after the whole contents match the
   * digest, so a reader of a damaged file never receives all of its bytes. Remembers the digest of a file that was read to its end. The
   * file stays open.
   *
   * @param expected - Digest of the file.
   * @param subject - Name of the file for the error message, without its path.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` if the contents differ or cannot be read.
   */
  async *read(file: FileHandle, { root, storedPath }: StoredPath, expected: FileDigest, subject: string): AsyncGenerator<Buffer, void> {
    const checkedFile = { path: join(root, storedPath), expected, subject, remedy: DEFAULT_REMEDY };
    const identity = await identityOf(file);
    const hash = createHash("sha256");
    let size = 0;
    let pendingPiece: Buffer | null = null;
    try {
      for await (const piece of piecesOf(file)) {
        hash.update(piece);
        size += piece.byteLength;
        // The file is longer than expected: the comparison below fails without the remaining bytes.
        if (size > expected.size_bytes) break;
        if (pendingPiece !== null) yield pendingPiece;
        pendingPiece = piece;
      }
    } catch (cause) {
      this.#fail(checkedFile, findingOf(cause), cause);
    }
    const foundDigest = { sha256: hash.digest("hex"), size_bytes: size };
    if (size <= expected.size_bytes) void this.#digests.set(identity, Promise.resolve(foundDigest));
    this.#compare(checkedFile, foundDigest);
    if (pendingPiece !== null) yield pendingPiece;
  }

  /** Returns the remembered digest of a file. Without one, reads the file. */
  async #digestOf({ root, storedPath }: StoredPath): Promise<FileDigest> {
    return closing(await openRegularFile(join(root, storedPath), root), async (file) =>
      remember(this.#digests, await identityOf(file), () => digestOpenFile(file)),
    );
  }

  /** Throws the error of a damaged file if the found digest differs from the expected one. */
  #compare(file: CheckedFile, foundDigest: FileDigest): void {
    const { expected } = file;
    if (isSame(foundDigest, expected)) return;
    const finding =
      foundDigest.size_bytes === expected.size_bytes
        ? "its bytes differ from its SHA-256 digest"
        : `expected ${expected.size_bytes} bytes, found ${foundDigest.size_bytes}`;
    this.#fail(file, finding);
  }

  /** Logs the path of a damaged file and throws its error. @param finding - Difference from the expected contents, for the message. */
  #fail({ path, expected, subject, remedy }: CheckedFile, finding: string, cause?: unknown): never {
    this.#logger.error("A stored file is damaged", { path, finding, expected });
    throw new DataCorruptedError(`${subject} is damaged: ${finding}. ${remedy}`, { cause });
  }
}

/** Returns the finding about a file that could not be opened or read. */
function findingOf(cause: unknown): string {
  if (cause instanceof DataError) return cause.message;
  const { code = "" } = cause as NodeJS.ErrnoException;
  return code === "ENOENT" ? "the file is missing" : `the file cannot be read (${code})`;
}

/** Whether two digests are equal. */
function isSame(foundDigest: FileDigest, expected: FileDigest): boolean {
  return foundDigest.sha256 === expected.sha256 && foundDigest.size_bytes === expected.size_bytes;
}

/** Returns a cache key that changes when a file is replaced or written to: its device, inode, size and modification time. */
async function identityOf(file: FileHandle): Promise<string> {
  const { dev, ino, size, mtimeNs } = await file.stat({ bigint: true });
  return `${dev} ${ino} ${size} ${mtimeNs}`;
}
