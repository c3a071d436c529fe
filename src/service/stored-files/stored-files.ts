/** Access to stored files for the parts of the service: files are provided by the storage and verified before use. */
import { closing } from "../disk/files.ts";
import { stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { Readable } from "node:stream";
import { DataCorruptedError, WhetstoneError } from "../../base/errors.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { OPTIMIZER_FILE } from "../../engine/port.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { traceOf, type ServiceLogger } from "../common/logger.ts";
import { artifactUrl, stepName } from "../common/names.ts";
import type { ArtifactFileRow, ArtifactRow, CheckpointRow, JobRow, ModelRow, Store } from "../store/tables.ts";
import { digestDirectory, piecesOf, type Digests, type FileDigest } from "../disk/digests.ts";
import { digestsOfCheckpoint, digestsOfJob, storedBlob, storedProgress, storedState } from "../disk/stored-path.ts";
import type { ReadVerified } from "../disk/verifier.ts";
import type { Storage } from "../storage/storage.ts";
import type { StoredFile } from "./inventory.ts";

/** Options of `openCheckpoint` and `useCheckpoint` of {@link StoredFiles}. */
interface OpenOptions {
  /** Whether the optimizer state is needed. @default false */
  readonly withOptimizer?: boolean | undefined;
}

/** Verified files of a checkpoint, which exist until they are released. */
export interface OpenCheckpoint {
  /** State directory. */
  readonly path: string;
  /** Verifies a file of the directory again while reading it. */
  readonly read: ReadVerified;
  readonly release: () => void;
}

/** Parts of the service that {@link StoredFiles} needs. */
export interface StoredFilesContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly storage: Storage;
  readonly logger: ServiceLogger;
}

/** Contents of an artifact file or an outcome, and their name for error messages. */
export type NamedContents = FileDigest & { readonly subject: string };

/**
 * Access to stored files, which are verified against the digests in the database before use.
 *
 * Methods named `use…` keep files in the data directory while a function runs; methods named `open…` until the caller releases or closes them.
 */
export class StoredFiles {
  readonly #store: Store;
  readonly #directory: DataDirectory;
  readonly #storage: Storage;
  readonly #logger: ServiceLogger;

  constructor({ store, directory, storage, logger }: StoredFilesContext) {
    this.#store = store;
    this.#directory = directory;
    this.#storage = storage;
    this.#logger = logger;
  }

  /**
   * Opens the verified files of a checkpoint. Records the digests of a checkpoint without recorded digests at its first use.
   *
   * @param row - Checkpoint with a non-null `state_dir`.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` naming model and step if a file is missing or differs.
   */
  async openCheckpoint(model: ModelRow, row: CheckpointRow, { withOptimizer = false }: OpenOptions = {}): Promise<OpenCheckpoint> {
    const subject = subjectOfCheckpoint(model, row);
    const { root } = this.#directory;
    const stateDir = storedState(row);
    const path = join(root, stateDir);
    const recorded = digestsOfCheckpoint(row);
    const isNeeded = (name: string) => name !== OPTIMIZER_FILE || (withOptimizer && row.optimizer_kind !== null);
    const release = recorded === null ? () => undefined : await this.#provide(recorded, subject, isNeeded);
    const digests = recorded ?? (await this.#recordDigests(row, path, subject));
    const read: ReadVerified = (name, file) => {
      const storedPath = `${stateDir}/${name}`;
      const digest = digests[storedPath];
      return digest === undefined
        ? piecesOf(file)
        : this.#storage.verifier.read(file, { root, storedPath }, digest, `${subject} (${name})`);
    };
    return { path, read, release };
  }

  /**
   * Calls `use` with the verified state directory of a checkpoint; see {@link openCheckpoint}.
   *
   * @throws DataCorruptedError `E_DATA_CORRUPTED` also if `use` rejects with `E_DATA`, because these files belong to the service and are not
   *   the caller's data.
   */
  async useCheckpoint<T>(model: ModelRow, row: CheckpointRow, use: (path: string) => Promise<T>, options: OpenOptions = {}): Promise<T> {
    const { path, release } = await this.openCheckpoint(model, row, options);
    return releaseAfter(release, () => this.#withStateErrors(subjectOfCheckpoint(model, row), path, () => use(path)));
  }

  /** Calls `use` with the verified progress directory of a job, under the same contract. The job's `progress_dir` must not be null. */
  async useProgress<T>(job: JobRow, use: (path: string) => Promise<T>): Promise<T> {
    const subject = `The progress of training job '${job.id}'`;
    const storedPath = storedProgress(job);
    const progressDigests = Object.entries(digestsOfJob(job) ?? {}).filter(([path]) => path.startsWith(`${storedPath}/`));
    const release = await this.#provide(Object.fromEntries(progressDigests), subject);
    const path = join(this.#directory.root, storedPath);
    return releaseAfter(release, () => this.#withStateErrors(subject, path, () => use(path)));
  }

  /** Calls `use` while one file of a job (`groups.jsonl`, or the token report) exists, verified if its digest is recorded. */
  async useJobFile<T>(job: JobRow, storedPath: string, subject: string, use: () => Promise<T>): Promise<T> {
    const digest = digestsOfJob(job)?.[storedPath];
    const release = digest === undefined ? () => undefined : await this.#storage.provide({ [storedPath]: digest }, () => subject);
    return releaseAfter(release, use);
  }

  /**
   * Calls `use` with the paths of verified artifact files, by digest.
   *
   * @throws DataCorruptedError `E_DATA_CORRUPTED` naming artifact and file.
   */
  async useBlobs<T>(
    artifact: ArtifactRow,
    files: readonly ArtifactFileRow[],
    use: (paths: Readonly<Record<string, string>>) => Promise<T>,
  ): Promise<T> {
    return this.useContents(
      files.map((file) => ({ ...file, subject: subjectOfFile(artifact, file.path) })),
      use,
    );
  }

  /**
   * Opens an artifact file, which is verified first, and again while it is read; see {@link Verifier.read}.
   *
   * @throws DataCorruptedError `E_DATA_CORRUPTED` naming artifact and file.
   */
  openBlob(artifact: ArtifactRow, row: ArtifactFileRow): Promise<Readable> {
    return this.openContents(row, subjectOfFile(artifact, row.path));
  }

  /**
   * Calls `use` with the paths of verified contents, by digest.
   *
   * @throws DataCorruptedError `E_DATA_CORRUPTED` naming the subject of a content.
   */
  async useContents<T>(contents: readonly NamedContents[], use: (paths: Readonly<Record<string, string>>) => Promise<T>): Promise<T> {
    const { root } = this.#directory;
    const paths = Object.fromEntries(contents.map(({ sha256 }) => [sha256, join(root, storedBlob(sha256))]));
    return releaseAfter(await this.#provideContents(contents), () => use(paths));
  }

  /**
   * Opens a content, which is verified first, and again while it is read; see {@link Verifier.read}.
   *
   * @throws DataCorruptedError `E_DATA_CORRUPTED` naming `subject`.
   */
  async openContents({ sha256, size_bytes }: FileDigest, subject: string): Promise<Readable> {
    const digest = { sha256, size_bytes };
    const release = await this.#provideContents([{ ...digest, subject }]);
    try {
      const { file, pieces } = await this.#openVerified(storedBlob(sha256), digest, subject);
      return Readable.from(pieces, { objectMode: false }).once("close", () => void file.close().finally(release));
    } catch (error) {
      release();
      throw error;
    }
  }

  /**
   * Reads a whole file and verifies it, also if it was verified before. A file without a digest is not read.
   *
   * @param onPiece - Called with the size of each piece after it was read; delays the next piece.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` if the file differs or is not a regular file.
   * @throws the system's error, such as `ENOENT`, if it cannot be opened.
   */
  async recheck({ path, digest, subject }: StoredFile, onPiece: (bytes: number) => Promise<void>): Promise<void> {
    if (digest === null) return;
    const { file, pieces } = await this.#openVerified(path, digest, `The file of ${subject}`);
    await closing(file, async () => {
      for await (const { byteLength } of pieces) await onPiece(byteLength);
    });
  }

  /** Provides the files that `isNeeded` accepts by name, until the returned function is called. */
  #provide(digests: Digests, subject: string, isNeeded: (name: string) => boolean = () => true): Promise<() => void> {
    const needed = Object.entries(digests).filter(([path]) => isNeeded(basename(path)));
    return this.#storage.provide(Object.fromEntries(needed), (path) => `${subject} (${basename(path)})`);
  }

  /** Provides contents until the returned function is called. */
  #provideContents(contents: readonly NamedContents[]): Promise<() => void> {
    const digests = contents.map(({ sha256, size_bytes }) => [storedBlob(sha256), { sha256, size_bytes }] as const);
    const subjects = new Map(contents.map(({ sha256, subject }) => [storedBlob(sha256), subject]));
    return this.#storage.provide(Object.fromEntries(digests), (path) => subjects.get(path) ?? path);
  }

  /** Opens a file in the data directory and reads it with verification. */
  async #openVerified(storedPath: string, digest: FileDigest, subject: string) {
    const { verifier } = this.#storage;
    const location = { root: this.#directory.root, storedPath };
    const file = await verifier.open(location, digest, subject);
    return { file, pieces: verifier.read(file, location, digest, subject) };
  }

  /**
   * Computes the digests of a checkpoint that was created before digests were recorded, and records them. Concurrent calls record the same
   * values.
   *
   * @throws DataCorruptedError `E_DATA_CORRUPTED` if the directory of the checkpoint is missing.
   */
  async #recordDigests(row: CheckpointRow, path: string, subject: string): Promise<Digests> {
    if ((await stat(path).catch(() => null)) === null) {
      this.#logger.error("A stored directory is missing", { path });
      throw new DataCorruptedError(`${subject} is damaged: its files are missing. Restore them from a backup, or delete what needs them`);
    }
    const digests = await digestDirectory(path, storedState(row));
    const recording = this.#store
      .updateTable("checkpoints")
      .set({ digests: JSON.stringify(digests) })
      .where("id", "=", row.id);
    try {
      await recording.where("digests", "is", null).execute();
    } catch (error) {
      // The files are usable without the record; the next use records the digests.
      if (!isNoSpace(error)) throw error;
    }
    return digests;
  }

  /** Runs `use`. Converts `E_DATA` into `E_DATA_CORRUPTED`: the files belong to the service and are not the caller's data. */
  async #withStateErrors<T>(subject: string, path: string, use: () => Promise<T>): Promise<T> {
    try {
      return await use();
    } catch (cause) {
      if (!WhetstoneError.isInstance(cause) || cause.code !== "E_DATA") throw cause;
      this.#logger.error("A saved state cannot be loaded", { path, error: traceOf(cause) });
      throw new DataCorruptedError(
        `${subject} cannot be loaded: its files are damaged, or do not fit its base model; the service's log has the particulars. Restore them from a backup, or delete what needs them`,
        { cause },
      );
    }
  }
}

/** Calls `use`, then `release` in any case. */
async function releaseAfter<T>(release: () => void, use: () => Promise<T>): Promise<T> {
  try {
    return await use();
  } finally {
    release();
  }
}

/** Returns the name of a checkpoint for error messages. */
function subjectOfCheckpoint(model: ModelRow, { step }: CheckpointRow): string {
  return `Checkpoint '${stepName(model, step)}'`;
}

/** Returns the name of an artifact file for error messages. */
function subjectOfFile(artifact: ArtifactRow, path: string): string {
  return `File '${path}' of artifact '${artifactUrl(artifact)}'`;
}
