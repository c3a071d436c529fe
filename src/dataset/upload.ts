import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DataError } from "../errors.ts";
import { METADATA_FILE, metadataText } from "./metadata.ts";
import { writeDataset, type Examples, type WrittenDataset } from "./write-dataset.ts";

/** A version in an artifact store, as far as uploading asks. */
export interface StoredVersion {
  /** A committed version takes no more files. */
  readonly state: "open" | "committed";
  readonly url: string;
  readonly files: readonly {
    readonly path: string;
    /** Lower-case hexadecimal. */
    readonly sha256: string;
  }[];
}

/** Where datasets go: a `Service`, or a port of your own to another artifact store. */
export interface ArtifactUploader {
  readonly artifacts: {
    /** A store that honours `idempotencyKey` gives the same version for the same key, so that an interrupted upload goes on. */
    create(options: {
      readonly project: string;
      readonly name: string;
      readonly entity?: string | undefined;
      readonly metadata?: Record<string, string | number> | undefined;
      readonly idempotencyKey?: string | undefined;
      readonly signal?: AbortSignal | undefined;
    }): Promise<{ readonly id: string }>;
    /** A function gives the body anew for each attempt. */
    putFile(
      artifactId: string,
      path: string,
      body: string | (() => AsyncIterable<Uint8Array>),
      options?: { readonly signal?: AbortSignal | undefined },
    ): Promise<void>;
    /** What is there so far: files whose digest is right are not sent again, and all are compared before the commit. */
    get(artifactId: string, options?: { readonly signal?: AbortSignal | undefined }): Promise<StoredVersion>;
    /** Makes the version usable and says its address. */
    commit(artifactId: string, options?: { readonly signal?: AbortSignal | undefined }): Promise<{ readonly url: string }>;
  };
}

/** Options of {@link uploadDataset}. */
export interface UploadDatasetOptions {
  /** The artifact's name. Other content under the same name is a new version of it. */
  readonly name: string;
  /** @default "datasets" */
  readonly project?: string | undefined;
  /** @default the key's entity */
  readonly entity?: string | undefined;
  /** What to train on: trajectories, or plain conversations. */
  readonly train: Examples;
  /**
   * What not to train on: goes into an artifact of its own, `<name>-validation`, which the metadata of the other names as
   * `validation_url`. A job measures it when it is told to, by that address as `validationDataUrl`. @default none
   */
  readonly validation?: Examples | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The name that the service knows data under. */
const DATA_FILE = "trajectories.jsonl";

/**
 * Uploads training data as an artifact version: `trajectories.jsonl` and `metadata.json`.
 *
 * Everything is written and checked locally first, and a version is committed only when the store has every file with the right SHA-256.
 * Started again with the same content, it takes up the version that it began and sends the files that are missing; a file that was cut
 * off is sent anew. A service remembers that for a day; within it, the same content twice is one version.
 *
 * @returns The address for `model.trainSft`: `artifact:///entity/project/name:vN`.
 * @throws DataError `E_DATA` when there is nothing to upload, an item does not fit, or what the store has is not what was sent; HttpError `E_HTTP`.
 * @example
 * ```ts
 * const { train, validation } = readTrajectories("runs/*\/trajectories/train/*.jsonl").split({ validation: 0.05, seed: 7 });
 * const data = await uploadDataset(service, { name: "distilled", train, validation });
 * const job = await model.trainSft(data, { batchSize: 16, learningRate: 2e-4 });
 * ```
 */
export async function uploadDataset(service: ArtifactUploader, options: UploadDatasetOptions): Promise<string> {
  const { name, train, validation, signal } = options;
  signal?.throwIfAborted();
  const directory = await mkdtemp(join(tmpdir(), "whetstone-dataset-"));
  try {
    // Both are written before anything is sent: an item of either that does not fit costs no upload.
    const written = await write("train", train);
    const checked = validation === undefined ? null : await write("validation", validation);
    const more = checked === null ? {} : { validation_url: await upload(service, checked, { ...options, name: `${name}-validation` }) };
    return await upload(service, { ...written, metadata: { ...written.metadata, ...more } }, options);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }

  async function write(param: "train" | "validation", examples: Examples): Promise<WrittenDataset> {
    try {
      return await writeDataset(join(directory, param), examples, { signal });
    } catch (error) {
      if (!(error instanceof DataError) || signal?.aborted) throw error;
      throw new DataError(`\`${param}\`: ${error.message}`, { cause: error, param });
    }
  }
}

interface UploadFile {
  readonly path: string;
  readonly sha256: string;
  readonly body: string | (() => AsyncIterable<Uint8Array>);
}

async function upload(
  { artifacts }: ArtifactUploader,
  { path, metadata }: WrittenDataset,
  { project = "datasets", name, entity, signal }: Pick<UploadDatasetOptions, "project" | "name" | "entity" | "signal">,
): Promise<string> {
  const text = metadataText(metadata);
  const files: readonly UploadFile[] = [
    { path: DATA_FILE, sha256: metadata.sha256, body: () => createReadStream(path) },
    { path: METADATA_FILE, sha256: sha256(text), body: text },
  ];
  const idempotencyKey = `dataset-${sha256(JSON.stringify([entity ?? null, project, name, files.map((file) => file.sha256)]))}`;
  const { id } = await artifacts.create({ project, name, entity, metadata: { ...metadata }, idempotencyKey, signal });
  const before = await artifacts.get(id, { signal });
  const missing = files.filter((file) => !isStored(before, file));
  if (before.state === "committed" && missing.length === 0) return before.url;
  for (const file of missing) await artifacts.putFile(id, file.path, file.body, { signal });
  const after = missing.length === 0 ? before : await artifacts.get(id, { signal });
  const wrong = files.find((file) => !isStored(after, file));
  if (wrong !== undefined) {
    const came = after.files.find((file) => file.path === wrong.path)?.sha256 ?? "no such file";
    throw new DataError(
      `${after.url}: expected the store to have ${wrong.path} with SHA-256 ${wrong.sha256}, it has ${came}; upload again`,
    );
  }
  return (await artifacts.commit(id, { signal })).url;
}

function isStored({ files }: StoredVersion, { path, sha256: expected }: UploadFile): boolean {
  return files.some((file) => file.path === path && file.sha256 === expected);
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
