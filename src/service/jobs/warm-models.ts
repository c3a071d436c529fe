/** Models that stay in the engine's memory between jobs, and their loading from progress, checkpoint or base model. */
import type { Engine, LoraSpec, ModelHandle } from "../../engine/port.ts";
import type { LoraConfig } from "../../base/schema/index.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { Lru } from "../../base/util/lru.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { CheckpointRow, JobRow, ModelRow } from "../store/tables.ts";

/** Model in the engine's memory. */
export interface WarmModel {
  readonly handle: ModelHandle;
  /** Checkpoint with the same weights. */
  readonly checkpointId: string;
  /** Kind of the job that wrote the optimizer moments. */
  readonly optimizerKind: JobRow["type"];
}

/** Options of {@link WarmModels.acquire}. */
export interface AcquireOptions {
  readonly model: ModelRow;
  readonly checkpoint: CheckpointRow;
  /** Job to run. Its progress from before a crash takes precedence over the checkpoint. */
  readonly job: JobRow;
  readonly signal: AbortSignal;
}

/** Returns the adapter settings of a model for `createModel`. */
export function loraOf(model: ModelRow): { readonly lora: LoraSpec } | Record<string, never> {
  if (model.lora === null) return {};
  const { rank, alpha } = JSON.parse(model.lora) as LoraConfig;
  return { lora: { rank, ...(alpha === undefined ? {} : { alpha }) } };
}

/** Options of {@link WarmModels}. */
export interface WarmModelsOptions {
  readonly engine: Engine;
  readonly files: Pick<StoredFiles, "useProgress" | "useCheckpoint">;
  readonly logger: ServiceLogger;
  /** Max cached models. */
  readonly max: number;
}

/** Cache of recently trained models, so that the next job of the same model starts without loading. */
export class WarmModels {
  readonly #engine: Engine;
  readonly #files: WarmModelsOptions["files"];
  readonly #logger: ServiceLogger;
  readonly #cache: Lru<string, WarmModel>;

  constructor({ engine, files, logger, max }: WarmModelsOptions) {
    this.#engine = engine;
    this.#files = files;
    this.#logger = logger;
    this.#cache = new Lru({ maxEntries: max });
  }

  /**
   * Returns a model for exclusive use, from the cache or loaded from disk. The cache has no entry of the model until {@link keep}. Its
   * weights are the job's progress or else the checkpoint. Its optimizer moments are zero if a job of another kind wrote them.
   */
  async acquire(options: AcquireOptions): Promise<ModelHandle> {
    const { model, checkpoint, job, signal } = options;
    const cached = this.#cache.get(model.id);
    this.#cache.delete(model.id);
    if (cached === undefined || this.#engine.holds?.(cached.handle) === false) return this.#load(options);
    // Cached weights match a checkpoint; the progress of an interrupted job is newer.
    if (job.progress_dir !== null || cached.checkpointId !== checkpoint.id) {
      await this.#unload(cached.handle);
      return this.#load(options);
    }
    if (cached.optimizerKind !== job.type) await this.#resetOrUnload(cached.handle, signal);
    return cached.handle;
  }

  /** Returns a model to the cache. Its weights must match the checkpoint. */
  async keep(modelId: string, model: WarmModel): Promise<void> {
    for (const { handle } of this.#cache.set(modelId, model)) await this.#unload(handle);
  }

  /** Unloads a model and removes it from the cache, if it is there. */
  async forget(modelId: string): Promise<void> {
    const cached = this.#cache.get(modelId);
    if (cached === undefined) return;
    this.#cache.delete(modelId);
    await this.#engine.unload(cached.handle);
  }

  /** Loads a model from the progress of the job, else from the checkpoint, else from the base model. */
  async #load({ model, checkpoint, job, signal }: AcquireOptions): Promise<ModelHandle> {
    const spec = { base: model.base_model, ...loraOf(model), seed: model.seed };
    const createFrom = (path: string) => this.#engine.createModel({ ...spec, from: path }, { signal });
    if (job.progress_dir !== null) return this.#files.useProgress(job, createFrom);
    if (checkpoint.state_dir === null) return this.#engine.createModel(spec, { signal });
    const handle = await this.#files.useCheckpoint(model, checkpoint, createFrom, { withOptimizer: true });
    const { optimizer_kind: kind } = checkpoint;
    if (kind !== null && kind !== job.type) await this.#resetOrUnload(handle, signal);
    return handle;
  }

  /** Zeroes the optimizer moments of a model. Unloads the model if this fails. */
  async #resetOrUnload(handle: ModelHandle, signal: AbortSignal): Promise<void> {
    try {
      await this.#engine.resetOptimizer(handle, { signal });
    } catch (error) {
      await this.#unload(handle);
      throw error;
    }
  }

  /** Unloads a model that is no longer needed. A failure is only logged, because it concerns neither the job nor its model. */
  async #unload(handle: ModelHandle): Promise<void> {
    await this.#engine.unload(handle).catch(logFailure(this.#logger, "A model that is no longer needed could not be unloaded"));
  }
}
