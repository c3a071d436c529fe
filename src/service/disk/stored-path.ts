/**
 * Paths of stored files. Ids and paths in database rows may come from a damaged or hostile backup. They are checked here at every use, so
 * that no row makes the service read, write or remove anything outside the folder of its object.
 */
import { join } from "node:path";
import { DataCorruptedError } from "../../base/errors.ts";
import type { DataDirectory } from "./data-directory.ts";
import { parseDigests, type Digests } from "./digests.ts";

/** Ids that are safe as file names. The ids that the service creates are UUIDs. */
const ID = /^[\w-]{1,100}$/u;
/** SHA-256 digests, hexadecimal. */
const SHA256 = /^[0-9a-f]{64}$/u;

/** Suffix of a path that only one claim of a job uses: its lease token. Empty on a database that only one process uses. */
const CLAIM_SUFFIX = /^(?:-\d{1,10})?$/u;

/** Last sentence of every error message. */
const REMEDY = "Restore the data directory from a backup, or delete the object";

/** Returns an id that is safe as a file name. @throws DataCorruptedError `E_DATA_CORRUPTED` for any other id. */
function requireId(id: unknown, noun: string): string {
  if (typeof id === "string" && ID.test(id)) return id;
  throw new DataCorruptedError(`The database is damaged: expected the id of a ${noun}, found ${shown(id)}. ${REMEDY}`);
}

/** Returns a value for an error message, shortened. */
function shown(value: unknown): string {
  return typeof value === "string" ? `'${value.slice(0, 200)}'` : String(value).slice(0, 200);
}

/** Returns the directory of a model's checkpoints. @throws DataCorruptedError `E_DATA_CORRUPTED` for an id that is not a file name. */
export function modelDirectory({ checkpoints }: Pick<DataDirectory, "checkpoints">, modelId: string): string {
  return join(checkpoints, requireId(modelId, "model"));
}

/**
 * Returns the path of the directory of a model's checkpoints, relative to the data directory.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for an id that is not a file name.
 */
export function storedModel(modelId: string): string {
  return `checkpoints/${requireId(modelId, "model")}`;
}

/** Returns the directory of an unfinished job. @throws DataCorruptedError `E_DATA_CORRUPTED` for an id that is not a file name. */
export function jobDirectory({ jobs }: Pick<DataDirectory, "jobs">, jobId: string): string {
  return join(jobs, requireId(jobId, "training job"));
}

/**
 * Returns the path of the directory of an unfinished job, relative to the data directory.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for an id that is not a file name.
 */
export function storedJob(jobId: string): string {
  return `jobs/${requireId(jobId, "training job")}`;
}

/**
 * Returns the path of a job's groups, relative to the data directory.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for an id that is not a file name.
 */
export function storedGroups(jobId: string): string {
  return `jobs/${requireId(jobId, "training job")}/groups.jsonl`;
}

/**
 * Returns the path of a job's token report, relative to the data directory.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for an id that is not a file name.
 */
export function storedReport(jobId: string): string {
  return `tokens/${requireId(jobId, "training job")}.json`;
}

/**
 * Returns the path of a preference job's log-probabilities under its reference policy, relative to the data directory.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for an id that is not a file name.
 */
export function storedReference(jobId: string): string {
  return `jobs/${requireId(jobId, "training job")}/reference-logprobs.bin`;
}

/**
 * Returns the path of a blob (the contents of an artifact file), relative to the data directory.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for anything but a SHA-256 digest.
 */
export function storedBlob(sha256: string): string {
  return `artifacts/blobs/${blobName(sha256)}`;
}

/**
 * Returns the path of a blob, relative to the directory of blobs.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for anything but a SHA-256 digest.
 */
export function blobName(sha256: string): string {
  if (typeof sha256 === "string" && SHA256.test(sha256)) return `${sha256.slice(0, 2)}/${sha256}`;
  throw new DataCorruptedError(
    `The database is damaged: expected the SHA-256 digest of an artifact file, found ${shown(sha256)}. ${REMEDY}`,
  );
}

/** Row with the columns that locate the files of a checkpoint. */
interface StateRow {
  readonly model_id: string;
  readonly step: number;
  readonly state_dir: string | null;
}

/**
 * Returns the path of a checkpoint's files, relative to the data directory and with `/` as the separator:
 * `checkpoints/<model id>/<step>`, or with the lease token of a claim `checkpoints/<model id>/<step>-<token>`.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for any other path.
 */
export function storedState({ model_id: modelId, step, state_dir: stateDir }: StateRow): string {
  return requirePlace(`checkpoints/${requireId(modelId, "model")}/${requireCount(step)}`, stateDir, `step ${step} of model '${modelId}'`);
}

/**
 * Returns the path of a checkpoint's files, relative to the data directory; null for a checkpoint without files, and for a row with any
 * other path.
 */
export function findStoredState(row: StateRow): string | null {
  try {
    return row.state_dir === null ? null : storedState(row);
  } catch (error) {
    if (error instanceof DataCorruptedError) return null;
    throw error;
  }
}

/** Row with the columns that locate the progress of a job. */
interface ProgressRow {
  readonly id: string;
  readonly committed_steps: number;
  readonly progress_dir: string | null;
}

/**
 * Returns the path of a job's progress, relative to the data directory and with `/` as the separator: `jobs/<id>/progress-<steps>`,
 * or with the lease token of a claim `jobs/<id>/progress-<steps>-<token>`.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for any other path.
 */
export function storedProgress({ id, committed_steps: steps, progress_dir: progressDir }: ProgressRow): string {
  return requirePlace(`jobs/${requireId(id, "training job")}/progress-${requireCount(steps)}`, progressDir, `training job '${id}'`);
}

/** Parses the digests of a checkpoint. @throws DataCorruptedError `E_DATA_CORRUPTED` for files outside of its directory. */
export function digestsOfCheckpoint(row: StateRow & { readonly digests: string | null }): Digests | null {
  return parseDigests(row.digests, { subject: `step ${row.step} of model '${row.model_id}'`, places: [`${storedState(row)}/`] });
}

/** Parses the digests of a job. @throws DataCorruptedError `E_DATA_CORRUPTED` for files outside of its directory and its token report. */
export function digestsOfJob({ id, digests }: { readonly id: string; readonly digests: string | null }): Digests | null {
  const places = [`jobs/${requireId(id, "training job")}/`, storedReport(id)];
  return parseDigests(digests, { subject: `training job '${id}'`, places });
}

/** Returns a number of steps that a row may have. @throws DataCorruptedError `E_DATA_CORRUPTED` for any other value. */
function requireCount(value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw new DataCorruptedError(`The database is damaged: expected a number of steps, found ${shown(value)}. ${REMEDY}`);
}

/**
 * Returns the path of an object's files: the expected path, or the expected path with the suffix of the claim that has written the files.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` if the row has any other path.
 */
function requirePlace(expected: string, found: unknown, subject: string): string {
  // Windows stores its own separator.
  const path = typeof found === "string" ? found.replaceAll("\\", "/") : "";
  if (path.startsWith(expected) && CLAIM_SUFFIX.test(path.slice(expected.length))) return path;
  throw new DataCorruptedError(
    `The database is damaged: expected the files of ${subject} in '${expected}', found ${shown(found)}. ${REMEDY}`,
  );
}
