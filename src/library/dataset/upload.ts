/**
 * Upload of a dataset as artifacts: one version for each half, the training and the validation data. `uploadHalves` is the sequence of steps,
 * shared with preference pairs; `upload` resumes and checks one version.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DataError } from "../../base/errors.ts";
import { METADATA_FILE, metadataText, type FileMetadata } from "./metadata.ts";
import { writeDataset, type Examples } from "./write-dataset.ts";

/** Version in an artifact store, with the fields that uploading reads. */
export interface StoredVersion {
  /** State of the version: an open version accepts files, a committed one does not. */
  readonly state: "open" | "committed";
  /** Address of the version. */
  readonly url: string;
  /** Files stored so far. */
  readonly files: readonly {
    /** Path inside the version. */
    readonly path: string;
    /** SHA-256 in lowercase hexadecimal. */
    readonly sha256: string;
  }[];
}

/** Target of an upload: a `Service`, or an adapter to another artifact store. */
export interface ArtifactUploader {
  /** Store of versioned file sets. */
  readonly artifacts: {
    /**
     * Creates a version. A store that supports `idempotencyKey` returns the same version for the same key, so that an interrupted upload
     * resumes.
     */
    create(options: {
      readonly project: string;
      readonly name: string;
      readonly entity?: string | undefined;
      readonly metadata?: Record<string, string | number> | undefined;
      readonly idempotencyKey?: string | undefined;
      readonly signal?: AbortSignal | undefined;
    }): Promise<{
      /** Id of the version in later calls. */
      readonly id: string;
    }>;
    /** Uploads a file. A `body` function creates a new stream for each attempt. */
    putFile(
      artifactId: string,
      path: string,
      body: string | (() => AsyncIterable<Uint8Array>),
      options?: { readonly signal?: AbortSignal | undefined },
    ): Promise<void>;
    /**
     * Returns the current state of a version: files with the right digest are not sent again, and all digests are checked before the
     * commit.
     */
    get(artifactId: string, options?: { readonly signal?: AbortSignal | undefined }): Promise<StoredVersion>;
    /** Commits a version, which makes it usable, and returns its address. */
    commit(
      artifactId: string,
      options?: { readonly signal?: AbortSignal | undefined },
    ): Promise<{
      /** Address of the committed version. */
      readonly url: string;
    }>;
  };
}

/** Options of {@link uploadDataset}. */
export interface UploadDatasetOptions {
  /** Name of the artifact. Different content under the same name becomes a new version. */
  readonly name: string;
  /** Project of the artifact. @default "datasets" */
  readonly project?: string | undefined;
  /** Entity of the artifact. @default the key's entity */
  readonly entity?: string | undefined;
  /** Training data: trajectories or plain conversations. */
  readonly train: Examples;
  /**
   * Validation data, excluded from training. Stored as a separate artifact, `<name>-validation`; the training artifact's metadata refers to
   * it as `validation_url`. A job that is given the result of the upload measures the loss on it.
   *
   * @default none
   */
  readonly validation?: Examples | undefined;
  /** Stops the upload, which then rejects with the signal's reason; the same call resumes it. */
  readonly signal?: AbortSignal | undefined;
}

/** Addresses of uploaded data; `model.trainSft`, `model.trainPreferences` and the runs accept the object as dataset. */
export interface UploadedDataset {
  /** Address of the training data: `artifact:///entity/project/name:vN`. */
  readonly url: string;
  /** Address of the validation data, `artifact:///entity/project/name-validation:vN`; null without `validation`. */
  readonly validationUrl: string | null;
}

/**
 * Uploads training data as an artifact version: `trajectories.jsonl` and `metadata.json`.
 *
 * All data is written and checked locally first, and a version is committed only if the store has every file with the right SHA-256. An
 * upload repeated with the same content resumes the version of the first attempt and sends the files that are missing or differ. The
 * service keeps idempotency keys for a day; within that time, the same content results in one version.
 *
 * @param service - Service or artifact store.
 * @param options - Data, name and destination.
 * @returns The addresses of both halves, for `model.trainSft`.
 * @throws DataError `E_DATA` without data, for an invalid item, or if the stored files differ from the uploaded ones.
 * @throws HttpError `E_HTTP` for a failed request; ConnectionError `E_CONNECTION` without a complete response; the signal's reason.
 * @example
 * ```ts
 * import { readTrajectories } from "whetstone/dataset";
 *
 * const { train, validation } = readTrajectories("runs/*\/trajectories/train/*.jsonl").split({ validation: 0.05, seed: 7 });
 * const data = await uploadDataset(service, { name: "distilled", train, validation });
 * const job = await model.trainSft(data, { batchSize: 16, learningRate: 2e-4 });
 * ```
 */
export function uploadDataset(service: ArtifactUploader, options: UploadDatasetOptions): Promise<UploadedDataset> {
  return uploadHalves(service, options, (directory, examples: Examples, signal) => writeDataset(directory, examples, { signal }));
}

/** Destination and halves of an upload. */
export interface UploadHalvesOptions<T> extends Pick<UploadDatasetOptions, "name" | "project" | "entity" | "signal"> {
  readonly train: T;
  readonly validation?: T | undefined;
}

/** Data file with the content of its `metadata.json`. */
export interface DescribedFile {
  readonly path: string;
  readonly metadata: FileMetadata;
}

/**
 * Writes both halves of a dataset locally, and uploads each as an artifact version.
 *
 * @param write - Writes and checks one half in a directory.
 * @throws DataError `E_DATA`, with the half as param, for an error of `write`; the errors of {@link uploadDataset}.
 */
export async function uploadHalves<T>(
  service: ArtifactUploader,
  options: UploadHalvesOptions<T>,
  write: (directory: string, half: T, signal: AbortSignal | undefined) => Promise<DescribedFile>,
): Promise<UploadedDataset> {
  const { name, train, validation, signal } = options;
  signal?.throwIfAborted();
  const directory = await mkdtemp(join(tmpdir(), "whetstone-dataset-"));
  const writeHalf = async (param: "train" | "validation", half: T): Promise<DescribedFile> => {
    try {
      return await write(join(directory, param), half, signal);
    } catch (error) {
      if (!(error instanceof DataError) || signal?.aborted) throw error;
      throw new DataError(`\`${param}\`: ${error.message}`, { cause: error, param });
    }
  };
  try {
    // Both data sets are written before the first upload, so that an invalid item in either prevents uploading.
    const trainFile = await writeHalf("train", train);
    const validationFile = validation === undefined ? null : await writeHalf("validation", validation);
    if (validationFile === null) return { url: await upload(service, trainFile, options), validationUrl: null };
    const validationUrl = await upload(service, validationFile, { ...options, name: `${name}-validation` });
    const metadata = { ...trainFile.metadata, validation_url: validationUrl };
    return { url: await upload(service, { ...trainFile, metadata }, options), validationUrl };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** File to upload; a `body` function creates a new stream for each attempt. */
interface UploadFile {
  readonly path: string;
  readonly sha256: string;
  readonly body: string | (() => AsyncIterable<Uint8Array>);
}

/** Uploads a written dataset as one artifact version. @returns its address. */
async function upload(
  { artifacts }: ArtifactUploader,
  { path, metadata }: DescribedFile,
  { project = "datasets", name, entity, signal }: Pick<UploadDatasetOptions, "project" | "name" | "entity" | "signal">,
): Promise<string> {
  const text = metadataText(metadata);
  const files: readonly UploadFile[] = [
    { path: metadata.file, sha256: metadata.sha256, body: () => createReadStream(path) },
    { path: METADATA_FILE, sha256: sha256(text), body: text },
  ];
  // The same content under the same name has the same key, so that a repeated upload resumes its version.
  const identity = [entity ?? null, project, name, files.map((file) => file.sha256)];
  const idempotencyKey = `dataset-${sha256(JSON.stringify(identity))}`;
  const { id } = await artifacts.create({ project, name, entity, metadata: { ...metadata }, idempotencyKey, signal });
  const before = await artifacts.get(id, { signal });
  const missing = files.filter((file) => !isStored(before, file));
  if (before.state === "committed" && missing.length === 0) return before.url;
  for (const file of missing) await artifacts.putFile(id, file.path, file.body, { signal });
  const after = missing.length === 0 ? before : await artifacts.get(id, { signal });
  const damaged = files.find((file) => !isStored(after, file));
  if (damaged !== undefined) {
    const stored = after.files.find((file) => file.path === damaged.path)?.sha256 ?? "no such file";
    throw new DataError(
      `${after.url}: expected the store to have ${damaged.path} with SHA-256 ${damaged.sha256}, it has ${stored}; upload again`,
    );
  }
  return (await artifacts.commit(id, { signal })).url;
}

/** Whether a version has a file with the right content. */
function isStored({ files }: StoredVersion, { path, sha256: expected }: UploadFile): boolean {
  return files.some((file) => file.path === path && file.sha256 === expected);
}

/** Returns the SHA-256 of a text in lowercase hexadecimal. */
function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
