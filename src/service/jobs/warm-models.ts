import type { Engine, LoraSpec, ModelHandle } from "../../engine/port.ts";
import type { LoraConfig } from "../../base/schema/index.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { Lru } from "../../base/util/lru.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { CheckpointRow, JobRow, ModelRow } from "../store/tables.ts";

/** Model in the engine's memory, and the checkpoint that its weights match. */
export interface WarmModel {
  readonly handle: ModelHandle;
  readonly checkpointId: string;
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
  readonly files: StoredFiles;
  readonly logger: ServiceLogger;
  /** Max cached models. */
  readonly max: number;
}

/** Cache of recently trained models, so that the next job of the same model starts without loading. */
export class WarmModels {
  readonly #engine: Engine;
  readonly #files: StoredFiles;
  readonly #logger: ServiceLogger;
  readonly #warm: Lru<string, WarmModel>;

  constructor({ engine, files, logger, max }: WarmModelsOptions) {
    this.#engine = engine;
    this.#files = files;
    this.#logger = logger;
    this.#warm = new Lru({ maxEntries: max });
  }

  /**
   * Returns a model for exclusive use, from the cache or loaded from disk. It leaves the cache until {@link keep}. Its weights are the
   * job's progress or else the checkpoint. Its optimizer moments are zero if a job of another kind wrote them.
   */
  async acquire(options: AcquireOptions): Promise<ModelHandle> {
    const { model, checkpoint, job, signal } = options;
    const kept = this.#warm.get(model.id);
    this.#warm.delete(model.id);
    if (kept === undefined || this.#engine.holds?.(kept.handle) === false) return this.#load(options);
    if (job.progress_dir !== null || kept.checkpointId !== checkpoint.id) {
      await this.#unload(kept.handle);
      return this.#load(options);
    }
    if (kept.optimizerKind !== job.type) await this.#resetOrUnload(kept.handle, signal);
    return kept.handle;
  }

  /** Returns a model to the cache. Its weights must match the checkpoint. */
  async keep(modelId: string, model: WarmModel): Promise<void> {
    for (const { handle } of this.#warm.set(modelId, model)) await this.#unload(handle);
  }

  /** Unloads a model and removes it from the cache, if it is there. */
  async forget(modelId: string): Promise<void> {
    const kept = this.#warm.get(modelId);
    if (kept === undefined) return;
    this.#warm.delete(modelId);
    await this.#engine.unload(kept.handle);
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
