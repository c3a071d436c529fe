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
import { openRegularFile } from "../../base/util/regular-file.ts";
import { digestDirectory, piecesOf, type Digests, type FileDigest } from "../disk/digests.ts";
import { digestsOfCheckpoint, digestsOfJob, storedBlob, storedProgress, storedState } from "../disk/stored-path.ts";
import { Verifier, type ReadVerified } from "../disk/verifier.ts";
import type { StoredFile } from "./inventory.ts";

/** Options of `useCheckpoint` of {@link StoredFiles}. */
interface UseOptions {
  /** Whether the optimizer state is needed. @default false */
  readonly withOptimizer?: boolean | undefined;
}

/** Access to stored files, which are verified against the digests in the database before use. */
export type StoredFiles = ReturnType<typeof createStoredFiles>;

/** Parts of the service that {@link createStoredFiles} needs. */
export interface StoredFilesContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly logger: ServiceLogger;
}

/** Creates the {@link StoredFiles} of a data directory. */
export function createStoredFiles({ store, directory, logger }: StoredFilesContext) {
  const verifier = new Verifier(logger);

  /** Verifies files against their digests; all of them, or those that `isNeeded` accepts by name. */
  async function verifyAll(digests: Digests, subject: string, isNeeded: (name: string) => boolean = () => true): Promise<void> {
    for (const [storedPath, digest] of Object.entries(digests)) {
      const name = basename(storedPath);
      if (isNeeded(name)) await verifier.check({ root: directory.root, storedPath }, digest, `${subject} (${name})`);
    }
  }
  /** Runs `use`. Converts `E_DATA` into `E_DATA_CORRUPTED`: the files belong to the service and are not the caller's data. */
  async function attempt<T>(subject: string, path: string, use: () => Promise<T>): Promise<T> {
    try {
      return await use();
    } catch (cause) {
      if (!WhetstoneError.isInstance(cause) || cause.code !== "E_DATA") throw cause;
      logger.error("A saved state cannot be loaded", { path, error: traceOf(cause) });
      throw new DataCorruptedError(
        `${subject} cannot be loaded: its files are damaged, or do not fit its base model; the service's log has the particulars. Restore them from a backup, or delete what needs them`,
        { cause },
      );
    }
  }
  /**
   * Records and returns the digests of a checkpoint created before digests were recorded. Concurrent calls record the same values.
   */
  async function record(row: CheckpointRow, path: string): Promise<Digests> {
    const digests = await digestDirectory(path, storedState(row));
    const recording = store
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
  /** Opens a stored file and reads it with verification. */
  async function open(storedPath: string, digest: FileDigest, subject: string) {
    const file = await openRegularFile(join(directory.root, storedPath), directory.root);
    return { file, pieces: verifier.read(file, { root: directory.root, storedPath }, digest, subject) };
  }

  return {
    /**
     * Calls `use` with the verified state directory of a checkpoint, and with a function that verifies its files again while reading them.
     * Records the digests of a checkpoint without recorded digests at its first use.
     *
     * @param row - Checkpoint with a non-null `state_dir`.
     * @throws DataCorruptedError `E_DATA_CORRUPTED` naming model and step if a file is missing or differs, or if `use` rejects with
     *   `E_DATA`, because these files belong to the service and are not the caller's data.
     */
    async useCheckpoint<T>(
      model: ModelRow,
      row: CheckpointRow,
      use: (path: string, read: ReadVerified) => Promise<T>,
      { withOptimizer = false }: UseOptions = {},
    ): Promise<T> {
      const subject = `Checkpoint '${stepName(model, row.step)}'`;
      const path = join(directory.root, storedState(row));
      let digests = digestsOfCheckpoint(row);
      const isNeeded = (name: string) => name !== OPTIMIZER_FILE || (withOptimizer && row.optimizer_kind !== null);
      if (digests !== null) {
        await verifyAll(digests, subject, isNeeded);
      } else if ((await stat(path).catch(() => null)) === null) {
        logger.error("A stored directory is missing", { path });
        throw new DataCorruptedError(`${subject} is damaged: its files are missing. Restore them from a backup, or delete what needs them`);
      } else {
        digests = await record(row, path);
      }
      const read: ReadVerified = (name, file) => {
        const place = { root: directory.root, storedPath: `${storedState(row)}/${name}` };
        const digest = digests[place.storedPath];
        return digest === undefined ? piecesOf(file) : verifier.read(file, place, digest, `${subject} (${name})`);
      };
      return attempt(subject, path, () => use(path, read));
    },
    /** Calls `use` with the verified progress directory of a job, under the same contract. The job's `progress_dir` must not be null. */
    async useProgress<T>(job: JobRow, use: (path: string) => Promise<T>): Promise<T> {
      const subject = `The progress of training job '${job.id}'`;
      const storedPath = storedProgress(job);
      const ofProgress = Object.entries(digestsOfJob(job) ?? {}).filter(([path]) => path.startsWith(`${storedPath}/`));
      await verifyAll(Object.fromEntries(ofProgress), subject);
      const path = join(directory.root, storedPath);
      return attempt(subject, path, () => use(path));
    },
    /** Verifies one file of a job (`groups.jsonl`, or the token report), if its digest is recorded. */
    async verifyJobFile(job: JobRow, storedPath: string, subject: string): Promise<void> {
      const digest = digestsOfJob(job)?.[storedPath];
      if (digest !== undefined) await verifier.check({ root: directory.root, storedPath }, digest, subject);
    },
    /**
     * Returns the path of the verified contents of an artifact file.
     *
     * @throws DataCorruptedError `E_DATA_CORRUPTED` naming artifact and file.
     */
    async blobPath(artifact: ArtifactRow, { path, sha256, size_bytes }: ArtifactFileRow): Promise<string> {
      return this.contentsPath({ sha256, size_bytes }, subjectOf(artifact, path));
    },
    /** Returns the path of a verified blob. @throws DataCorruptedError `E_DATA_CORRUPTED` naming `subject`. */
    async contentsPath(digest: FileDigest, subject: string): Promise<string> {
      const storedPath = storedBlob(digest.sha256);
      await verifier.check({ root: directory.root, storedPath }, digest, subject);
      return join(directory.root, storedPath);
    },
    /**
     * Opens an artifact file, which is verified first, and again while it is read; see {@link Verifier.read}.
     *
     * @throws DataCorruptedError `E_DATA_CORRUPTED` naming artifact and file.
     */
    async openBlob(artifact: ArtifactRow, { path, sha256, size_bytes }: ArtifactFileRow): Promise<Readable> {
      return this.openContents({ sha256, size_bytes }, subjectOf(artifact, path));
    },
    /** Opens a blob as {@link openBlob} does. @throws DataCorruptedError `E_DATA_CORRUPTED` naming `subject`. */
    async openContents(digest: FileDigest, subject: string): Promise<Readable> {
      await this.contentsPath(digest, subject);
      const { file, pieces } = await open(storedBlob(digest.sha256), digest, subject);
      return Readable.from(pieces, { objectMode: false }).once("close", () => void file.close());
    },
    /**
     * Reads a whole file and verifies it, also if it was verified before. A file without a digest is not read.
     *
     * @param onPiece - Called with the size of each piece after it was read; delays the next piece.
     * @throws DataCorruptedError `E_DATA_CORRUPTED` if the file differs or is not a regular file.
     * @throws the system's error, such as `ENOENT`, if it cannot be opened.
     */
    async recheck({ path, digest, subject }: StoredFile, onPiece: (bytes: number) => Promise<void>): Promise<void> {
      if (digest === null) return;
      const { file, pieces } = await open(path, digest, `The file of ${subject}`);
      await closing(file, async () => {
        for await (const { byteLength } of pieces) await onPiece(byteLength);
      });
    },
  };
}

function subjectOf(artifact: ArtifactRow, path: string): string {
  return `File '${path}' of artifact '${artifactUrl(artifact)}'`;
}
