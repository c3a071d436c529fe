import { stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { DataCorruptedError, WhetstoneError } from "../../errors.ts";
import { isNoSpace } from "../../util/no-space.ts";
import type { BlobStore } from "../artifacts/blob-store.ts";
import { OPTIMIZER_FILE } from "../../engine/port.ts";
import type { DataDirectory } from "../data-directory.ts";
import { traceOf } from "../error-text.ts";
import type { ServiceLogger } from "../logger.ts";
import { artifactUrl, stepName } from "../names.ts";
import type { ArtifactFileRow, ArtifactRow, CheckpointRow, JobRow, ModelRow, Store } from "../store/tables.ts";
import { digestDirectory, parseDigests, type Digests } from "../digests.ts";
import { Verifier } from "../verifier.ts";

/** Options of {@link StoredFiles.useCheckpoint}. */
export interface UseOptions {
  /** Whether the optimizer state is needed. @default false */
  readonly withOptimizer?: boolean | undefined;
}

/** Access to stored files, which are verified against the digests in the database before use. */
export interface StoredFiles {
  /**
   * Calls `use` with the verified state directory of a checkpoint. For a checkpoint without recorded digests, records them at its first
   * use.
   *
   * @param row - Checkpoint with a non-null `state_dir`.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` naming model and step if a file is missing or differs, or if `use` rejects with `E_DATA`,
   *   because these files belong to the service and are not the caller's data.
   */
  useCheckpoint<T>(model: ModelRow, row: CheckpointRow, use: (path: string) => Promise<T>, options?: UseOptions): Promise<T>;
  /** Calls `use` with the verified progress directory of a job, under the same contract. The job's `progress_dir` must not be null. */
  useProgress<T>(job: JobRow, use: (path: string) => Promise<T>): Promise<T>;
  /** Verifies one file of a job (`groups.jsonl`, or the token report), if its digest is recorded. */
  verifyJobFile(job: JobRow, storedPath: string, subject: string): Promise<void>;
  /**
   * Returns the path of the verified contents of an artifact file.
   *
   * @throws DataCorruptedError `E_DATA_CORRUPTED` naming artifact and file.
   */
  blobPath(artifact: ArtifactRow, file: ArtifactFileRow): Promise<string>;
}

/** Parts of the service that {@link createStoredFiles} needs. */
export interface StoredFilesContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly blobs: Pick<BlobStore, "path">;
  readonly logger: ServiceLogger;
}

/** Creates the {@link StoredFiles} of a data directory. */
export function createStoredFiles({ store, directory, blobs, logger }: StoredFilesContext): StoredFiles {
  const verifier = new Verifier(logger);

  async function verifyAll(digests: Digests, subject: string, isNeeded: (name: string) => boolean = () => true): Promise<void> {
    for (const [storedPath, digest] of Object.entries(digests)) {
      const name = basename(storedPath);
      if (isNeeded(name)) await verifier.check(join(directory.root, storedPath), digest, `${subject} (${name})`);
    }
  }
  async function attempt<T>(subject: string, path: string, use: (path: string) => Promise<T>): Promise<T> {
    try {
      return await use(path);
    } catch (cause) {
      if (!WhetstoneError.isInstance(cause) || cause.code !== "E_DATA") throw cause;
      logger.error("A saved state cannot be loaded", { path, error: traceOf(cause) });
      throw new DataCorruptedError(
        `${subject} cannot be loaded: its files are damaged, or do not fit its base model; the service's log has the particulars. Restore them from a backup, or delete what needs them`,
        { cause },
      );
    }
  }
  /** Records the digests of a checkpoint created before digests were recorded. Concurrent calls record the same values. */
  async function record(row: CheckpointRow, path: string): Promise<void> {
    const digests = await digestDirectory(path, row.state_dir as string);
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
  }

  return {
    async useCheckpoint(model, row, use, { withOptimizer = false } = {}) {
      const subject = `Checkpoint '${stepName(model, row.step)}'`;
      const path = join(directory.root, row.state_dir as string);
      const digests = parseDigests(row.digests);
      const isNeeded = (name: string) => name !== OPTIMIZER_FILE || (withOptimizer && row.optimizer_kind !== null);
      if (digests !== null) {
        await verifyAll(digests, subject, isNeeded);
      } else if ((await stat(path).catch(() => null)) === null) {
        logger.error("A stored directory is missing", { path });
        throw new DataCorruptedError(`${subject} is damaged: its files are missing. Restore them from a backup, or delete what needs them`);
      } else {
        await record(row, path);
      }
      return attempt(subject, path, use);
    },
    async useProgress(job, use) {
      const subject = `The progress of training job '${job.id}'`;
      const storedPath = `${job.progress_dir as string}/`;
      const ofProgress = Object.entries(parseDigests(job.digests) ?? {}).filter(([path]) => path.startsWith(storedPath));
      await verifyAll(Object.fromEntries(ofProgress), subject);
      return attempt(subject, join(directory.root, job.progress_dir as string), use);
    },
    async verifyJobFile(job, storedPath, subject) {
      const digest = parseDigests(job.digests)?.[storedPath];
      if (digest !== undefined) await verifier.check(join(directory.root, storedPath), digest, subject);
    },
    async blobPath(artifact, { path, sha256, size_bytes }) {
      await verifier.check(blobs.path(sha256), { sha256, size_bytes }, `File '${path}' of artifact '${artifactUrl(artifact)}'`);
      return blobs.path(sha256);
    },
  };
}
