import { createReadStream } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DataError } from "../errors.ts";
import type { Trajectory } from "../trajectory/index.ts";
import { trajectoryOf, writeTrajectories, type ChatExample } from "./trajectories.ts";

/** Where datasets go: a `Service`, or a port of your own to another artifact store. */
export interface ArtifactUploader {
  readonly artifacts: {
    create(options: {
      readonly project: string;
      readonly name: string;
      readonly entity?: string | undefined;
      readonly metadata?: Record<string, string | number> | undefined;
      readonly signal?: AbortSignal | undefined;
    }): Promise<{ readonly id: string }>;
    /** A function gives the body anew for each attempt. */
    putFile(
      artifactId: string,
      path: string,
      body: string | (() => AsyncIterable<Uint8Array>),
      options?: { readonly signal?: AbortSignal | undefined },
    ): Promise<void>;
    /** Makes the version usable and says its address. */
    commit(artifactId: string, options?: { readonly signal?: AbortSignal | undefined }): Promise<{ readonly url: string }>;
  };
}

/** Options of {@link uploadDataset}. */
export interface UploadDatasetOptions {
  readonly project: string;
  /** The artifact's name; each upload is a new version of it. */
  readonly name: string;
  /** @default the key's entity */
  readonly entity?: string | undefined;
  /** What to train on: trajectories, or plain conversations. */
  readonly train: Iterable<Trajectory | ChatExample> | AsyncIterable<Trajectory | ChatExample>;
  readonly signal?: AbortSignal | undefined;
}

/** Of the two files an upload consists of. Raised when their meaning changes. */
const SCHEMA_VERSION = 1;

/**
 * Uploads training data as a new artifact version: `trajectories.jsonl` and `metadata.json`.
 *
 * Everything is written and checked locally first; a version that fails half-way is never committed, and so never usable.
 *
 * @returns The address for `model.trainSft`: `artifact:///entity/project/name:vN`.
 * @throws DataError `E_DATA` when there is nothing to upload or an item does not fit; HttpError `E_HTTP`.
 */
export async function uploadDataset(
  service: ArtifactUploader,
  { project, name, entity, train, signal }: UploadDatasetOptions,
): Promise<string> {
  signal?.throwIfAborted();
  const directory = await mkdtemp(join(tmpdir(), "whetstone-dataset-"));
  try {
    const path = join(directory, "trajectories.jsonl");
    const { count, sha256 } = await writeTrajectories(path, trajectoriesOf(train), { signal });
    if (count === 0) throw new DataError("Expected at least one trajectory in `train`, got none", { param: "train" });
    const metadata = { format: "jsonl", num_trajectories: count, sha256, schema_version: SCHEMA_VERSION };
    const { id } = await service.artifacts.create({ project, name, entity, metadata, signal });
    await service.artifacts.putFile(id, "trajectories.jsonl", () => createReadStream(path), { signal });
    await service.artifacts.putFile(id, "metadata.json", `${JSON.stringify(metadata)}\n`, { signal });
    return (await service.artifacts.commit(id, { signal })).url;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function* trajectoriesOf(examples: UploadDatasetOptions["train"]): AsyncGenerator<Trajectory, void, undefined> {
  let index = 0;
  for await (const example of examples) yield trajectoryOf(example, ++index);
}
