/**
 * Step 0 of a new model: the base model, a copy of a checkpoint, or an imported adapter. The files are prepared here, before `insertModel`
 * inserts the rows; {@link Origin.discard} removes them if that fails.
 */
import { randomUUID } from "node:crypto";
import { copyFile, link, mkdir, readdir } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { ArgumentError, ConflictError, DataError, UnsupportedError, WhetstoneError } from "../../base/errors.ts";
import type { CheckpointLineage, CreateModelRequest, LoraConfig } from "../../base/schema/index.ts";
import type { BlobStore } from "../artifacts/blob-store.ts";
import type { ServiceLogger } from "../common/logger.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import type { BaseModels } from "../models/base-models.ts";
import type { Storage } from "../storage/storage.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { Holds } from "../../base/util/leases.ts";
import { remove, renameDurably, syncDirectory, temporaryName } from "../disk/files.ts";
import { saveDurably } from "./save-state.ts";
import { artifactUrl, parseArtifactUrl, stepName } from "../common/names.ts";
import { findCheckpoint } from "../models/policies.ts";
import { getArtifactByName, type StoredArtifact } from "../store/artifacts.ts";
import { makePrivate } from "../disk/private-files.ts";
import { modelDirectory, storedModel } from "../disk/stored-path.ts";
import { digestDirectory, type Digests } from "../disk/digests.ts";
import type { ArtifactFileRow, CheckpointRow, ModelRow, Store } from "../store/tables.ts";
import { OPTIMIZER_FILE, type Engine, type ModelHandle } from "../../engine/port.ts";
import { readAdapterConfig } from "../../engine/onnx/model/adapter-config.ts";
import { ADAPTER_CONFIG_FILE, ADAPTER_FILE } from "../../engine/onnx/model/peft.ts";

/** Initial state of a new model: columns and files of its step 0, and its adapter settings. */
export interface Origin extends Pick<CheckpointRow, "state_dir" | "optimizer_kind" | "metrics"> {
  readonly lora: LoraConfig | null;
  readonly lineage: CheckpointLineage;
  /** Digests of the files of step 0; null if step 0 has no files. */
  readonly digests: Digests | null;
  /** Seed of a newly initialized adapter. */
  readonly seed: number;
  /** Deletes the files of step 0. */
  readonly discard: () => Promise<void>;
}

/** Files of step 0. */
type OriginFiles = Pick<Origin, "state_dir" | "digests" | "discard">;

/** Step 0 without files. */
const NO_FILES: OriginFiles = { state_dir: null, digests: null, discard: () => Promise.resolve() };

/** Metrics of a step 0 that no job has made, as JSON. */
const NO_METRICS = "{}";

/** Parts of the service needed by {@link prepareOrigin}. */
export interface OriginContext {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly storage: Storage;
  readonly engine: Engine;
  readonly bases: BaseModels;
  /** Ids of checkpoints with open files, which retention does not delete. */
  readonly uses: Holds<string>;
  readonly blobs: BlobStore;
  readonly files: Pick<StoredFiles, "useCheckpoint" | "useBlobs">;
  readonly logger: ServiceLogger;
}

/** Model to create. */
export interface NewModel {
  readonly id: string;
  /** Seed of the adapter's initial weights, unless the model starts from `from`. */
  readonly seed: number;
  readonly request: CreateModelRequest;
}

/**
 * Prepares step 0 of a new model: no files for a model that starts from its base, a copy of a checkpoint's state, or an imported adapter.
 *
 * @throws ArgumentError `E_ARGUMENT` if base model or adapter settings differ from `from`.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown checkpoint or artifact.
 * @throws ConflictError `E_CONFLICT` for an uncommitted artifact, or an optimizer state that was not kept.
 * @throws DataError `E_DATA` for an adapter that cannot be read.
 * @throws UnsupportedError `E_UNSUPPORTED` for an adapter with unsupported settings.
 */
export async function prepareOrigin(context: OriginContext, model: NewModel): Promise<Origin> {
  const { request } = model;
  const from = request.from ?? null;
  if (from === null) {
    if (request.keep_optimizer === true) {
      throw new ArgumentError("Expected a checkpoint in `from` beside `keep_optimizer`: the base has no optimizer state", {
        param: "keep_optimizer",
      });
    }
    return {
      ...NO_FILES,
      optimizer_kind: null,
      seed: model.seed,
      metrics: NO_METRICS,
      lora: request.lora ?? null,
      lineage: lineageOf(request, null),
    };
  }
  // Addresses of artifacts end with a version, names of checkpoints with a step.
  return /:v\d+$/u.test(from) ? importAdapter(context, model, from) : forkCheckpoint(context, model, from);
}

/** Prepares step 0 as a copy of the checkpoint that `from` names. Its files are hard links where the file system allows. */
async function forkCheckpoint(context: OriginContext, model: NewModel, from: string): Promise<Origin> {
  const { store, bases } = context;
  const { request } = model;
  const { model: source, checkpoint } = await findCheckpoint(store, from, { bases: bases.ids, param: "from" });
  if (source.base_model !== request.base_model) {
    throw new ArgumentError(`Expected \`base_model\` to be '${source.base_model}', the one of '${from}', got '${request.base_model}'`, {
      param: "base_model",
    });
  }
  const lora = source.lora === null ? null : (JSON.parse(source.lora) as LoraConfig);
  requireSameAdapter(request, lora, from);
  const keepsOptimizer = request.keep_optimizer === true;
  if (keepsOptimizer) requireOptimizer(source, checkpoint);
  const columns = {
    metrics: checkpoint.metrics,
    optimizer_kind: keepsOptimizer ? checkpoint.optimizer_kind : null,
    lora,
    lineage: lineageOf(request, stepName(source, checkpoint.step)),
  };
  // A checkpoint without files is the base model, or a newly initialized adapter, which its seed recreates.
  if (checkpoint.state_dir === null) return { ...columns, seed: source.seed, ...NO_FILES };
  return { ...columns, seed: model.seed, ...(await copyCheckpoint(context, model, { source, checkpoint, keepsOptimizer })) };
}

/** Checkpoint to copy, with its model. */
interface CopiedCheckpoint {
  readonly source: ModelRow;
  readonly checkpoint: CheckpointRow;
  /** Whether the optimizer state is copied, too. */
  readonly keepsOptimizer: boolean;
}

/**
 * Copies the files of a checkpoint to step 0 of a new model.
 *
 * Retention skips held checkpoints, but a deletion by a user, the end of a job and an unpin do not. They change the row before the files, so
 * the row is checked again after the files were read.
 */
async function copyCheckpoint(
  context: OriginContext,
  model: NewModel,
  { source, checkpoint, keepsOptimizer }: CopiedCheckpoint,
): Promise<OriginFiles> {
  const { store, bases, uses, files } = context;
  const requireUnchanged = async () => {
    const found = await findCheckpoint(store, `${source.id}:step${checkpoint.step}`, { bases: bases.ids, param: "from" });
    if (keepsOptimizer) requireOptimizer(source, found.checkpoint);
  };
  const release = uses.hold(checkpoint.id);
  try {
    // The row may have changed before the hold.
    await requireUnchanged();
    return await makeState(context, model, async (temporary) => {
      const copy = async (sourcePath: string) => {
        for (const name of await readdir(sourcePath)) {
          if (name !== OPTIMIZER_FILE || keepsOptimizer) await linkOrCopy(join(sourcePath, name), join(temporary, name));
        }
      };
      try {
        await files.useCheckpoint(source, checkpoint, copy, { withOptimizer: keepsOptimizer });
      } finally {
        // Also after a failure, because a changed row explains it better than a missing file. Also after success, because a file that was
        // removed before the names were listed is missing in the copy.
        await requireUnchanged();
      }
    });
  } finally {
    release();
  }
}

/** Checks that the optimizer state of a checkpoint was kept. @throws ConflictError `E_CONFLICT` if not. */
function requireOptimizer(source: ModelRow, { step, optimizer_kind: kind }: CheckpointRow): void {
  if (kind !== null) return;
  throw new ConflictError(
    `The optimizer state of '${stepName(source, step)}' is not there: it is kept for a model's newest checkpoint and for pinned ones`,
    { param: "keep_optimizer" },
  );
}

/** Prepares step 0 from the adapter in the artifact version that `from` names. */
async function importAdapter(context: OriginContext, model: NewModel, from: string): Promise<Origin> {
  const { store, directory, engine } = context;
  const { request, seed } = model;
  if (request.keep_optimizer === true) {
    throw new ArgumentError("An artifact has no optimizer state: leave `keep_optimizer` out", { param: "keep_optimizer" });
  }
  const artifact = await getArtifactByName(store, parseArtifactUrl(from, "from"), "from");
  const staging = join(directory.temporary, randomUUID());
  await mkdir(staging, { mode: 0o700 });
  try {
    await stageAdapter(context, artifact, staging);
    const lora = await readAdapterConfig(join(staging, ADAPTER_CONFIG_FILE), `${from}: ${ADAPTER_CONFIG_FILE}`, "from");
    requireSameAdapter(request, lora, from);
    const lineage = lineageOf(request, artifactUrl(artifact));
    const handle = await engine
      .createModel({ base: request.base_model, lora, from: staging, seed })
      .catch((cause: unknown) => Promise.reject(attributeToFrom(from, cause)));
    try {
      const files = await saveFirstState(context, model, handle);
      return { ...files, optimizer_kind: null, seed, metrics: NO_METRICS, lora, lineage };
    } finally {
      await engine.unload(handle);
    }
  } finally {
    await remove(staging);
  }
}

/** Fills a directory with the files of an artifact's adapter. */
async function stageAdapter({ files }: OriginContext, artifact: StoredArtifact, staging: string): Promise<void> {
  const rows = [ADAPTER_CONFIG_FILE, ADAPTER_FILE].map((name) => adapterFile(artifact, name));
  await files.useBlobs(artifact, rows, async (paths) => {
    for (const { path, sha256 } of rows) await linkOrCopy(paths[sha256] ?? "", join(staging, path));
  });
}

/** Saves the state of a model in the engine as step 0. */
async function saveFirstState(context: OriginContext, { id }: NewModel, handle: ModelHandle): Promise<OriginFiles> {
  const { directory, storage } = context;
  const path = statePath(context, id);
  const discard = () => removeModelFiles(context, id);
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await syncDirectory(directory.checkpoints);
    const digests = await saveDurably(context, handle, path);
    // A state without an optimizer file stands for zero moments.
    await storage.remove(`${storedModel(id)}/0/${OPTIMIZER_FILE}`);
    return { state_dir: relative(directory.root, path), digests, discard };
  } catch (error) {
    await discard();
    throw error;
  }
}

/** Attributes an engine's error about an artifact's weights to the request field `from`. */
function attributeToFrom(from: string, cause: unknown): unknown {
  if (!(cause instanceof Error && WhetstoneError.isInstance(cause))) return cause;
  const message = `${from}: ${cause.message}`;
  if (cause.code === "E_DATA") return new DataError(message, { cause, param: "from" });
  return cause.code === "E_UNSUPPORTED" ? new UnsupportedError(message, { cause, param: "from" }) : cause;
}

/**
 * Returns a file of a committed artifact version.
 *
 * @throws ConflictError `E_CONFLICT` for an open version, DataError `E_DATA` if it has no such file.
 */
function adapterFile(artifact: StoredArtifact, name: string): ArtifactFileRow {
  const url = artifactUrl(artifact);
  if (artifact.state === "open") {
    throw new ConflictError(`Artifact '${url}' is not committed yet. Commit it with POST /v1/preview/artifacts/${artifact.id}/commit`, {
      param: "from",
    });
  }
  const file = artifact.files.find(({ path }) => path === name);
  if (file !== undefined) return file;
  throw new DataError(
    `Expected artifact '${url}' to hold an adapter in PEFT's layout, ${ADAPTER_CONFIG_FILE} and ${ADAPTER_FILE}; it has no ${name}`,
    { param: "from" },
  );
}

/**
 * Checks that a request with `lora` asks for the adapter that `from` has. An absent `alpha` means twice the rank.
 *
 * @throws ArgumentError `E_ARGUMENT` for other settings.
 */
function requireSameAdapter({ lora: requested }: CreateModelRequest, lora: LoraConfig | null, from: string): void {
  if (requested === null || requested === undefined) return;
  const alphaOf = ({ rank, alpha }: LoraConfig) => alpha ?? 2 * rank;
  if (lora !== null && requested.rank === lora.rank && alphaOf(requested) === alphaOf(lora)) return;
  throw new ArgumentError(
    `Expected \`lora\` to be that of '${from}' or left out: ${lora === null ? "every parameter of it is trained" : JSON.stringify(lora)}; got ${JSON.stringify(requested)}`,
    { param: "lora" },
  );
}

/** Returns the lineage of step 0, which no job has made. */
function lineageOf({ base_model }: CreateModelRequest, parent: string | null): CheckpointLineage {
  return { base_model, parent, job_id: null, job_type: null };
}

/** Returns the directory of the files of step 0. */
function statePath({ directory }: OriginContext, modelId: string): string {
  return join(modelDirectory(directory, modelId), "0");
}

/** Deletes the files of a new model. */
async function removeModelFiles({ storage }: OriginContext, modelId: string): Promise<void> {
  await storage.remove(storedModel(modelId));
}

/** Creates the directory of step 0, which `fill` writes under a temporary name: it is either complete or absent. */
async function makeState(context: OriginContext, { id }: NewModel, fill: (temporary: string) => Promise<void>): Promise<OriginFiles> {
  const path = statePath(context, id);
  const stateDir = relative(context.directory.root, path);
  const temporary = temporaryName(path);
  const discard = () => removeModelFiles(context, id);
  try {
    await mkdir(temporary, { recursive: true, mode: 0o700 });
    await syncDirectory(context.directory.checkpoints);
    await fill(temporary);
    await makePrivate(temporary);
    const digests = await digestDirectory(temporary, stateDir);
    await renameDurably(temporary, path);
    await context.storage.keep(digests);
    return { state_dir: stateDir, digests, discard };
  } catch (error) {
    await discard();
    throw error;
  }
}

/**
 * Creates a second name for a file by a hard link, or by a copy if the file system has no hard links. Safe because files of a state never
 * change.
 */
async function linkOrCopy(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch {
    await copyFile(from, to);
  }
}
