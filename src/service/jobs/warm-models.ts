import type { Engine, LoraSpec, ModelHandle } from "../../engine/port.ts";
import type { LoraConfig } from "../../schema/index.ts";
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

/** Cache of recently trained models, so that the next job of the same model starts without loading. */
export interface WarmModels {
  /**
   * Returns a model for exclusive use, with the weights of the checkpoint or the progress, and optimizer moments of the job's own kind or
   * zero.
   */
  acquire(options: AcquireOptions): Promise<ModelHandle>;
  /** Returns a model to the cache. Its weights must match the checkpoint. */
  keep(modelId: string, model: WarmModel): Promise<void>;
  forget(modelId: string): Promise<void>;
}

/** Returns the adapter settings of a model for `createModel`. */
export function loraOf(model: ModelRow): { readonly lora: LoraSpec } | Record<string, never> {
  if (model.lora === null) return {};
  const { rank, alpha } = JSON.parse(model.lora) as LoraConfig;
  return { lora: { rank, ...(alpha === undefined ? {} : { alpha }) } };
}

/** Creates a cache of at most `max` warm models. */
export function createWarmModels({
  engine,
  files,
  max,
}: {
  readonly engine: Engine;
  readonly files: StoredFiles;
  readonly max: number;
}): WarmModels {
  // Ordered by last use, oldest first.
  const warm = new Map<string, WarmModel>();

  async function load({ model, checkpoint, job, signal }: AcquireOptions): Promise<ModelHandle> {
    const spec = { base: model.base_model, ...loraOf(model), seed: model.seed };
    const createFrom = (path: string) => engine.createModel({ ...spec, from: path }, { signal });
    if (job.progress_dir !== null) return files.useProgress(job, createFrom);
    if (checkpoint.state_dir === null) return engine.createModel(spec, { signal });
    const handle = await files.useCheckpoint(model, checkpoint, createFrom, { withOptimizer: true });
    const { optimizer_kind: kind } = checkpoint;
    if (kind !== null && kind !== job.type) await resetOrUnload(handle, signal);
    return handle;
  }
  async function resetOrUnload(handle: ModelHandle, signal: AbortSignal): Promise<void> {
    try {
      await engine.resetOptimizer(handle, { signal });
    } catch (error) {
      await engine.unload(handle);
      throw error;
    }
  }

  return {
    async acquire(options) {
      const { model, checkpoint, job, signal } = options;
      const kept = warm.get(model.id);
      warm.delete(model.id);
      if (kept === undefined || engine.holds?.(kept.handle) === false) return load(options);
      if (job.progress_dir !== null || kept.checkpointId !== checkpoint.id) {
        await engine.unload(kept.handle);
        return load(options);
      }
      if (kept.optimizerKind !== job.type) await resetOrUnload(kept.handle, signal);
      return kept.handle;
    },
    async keep(modelId, model) {
      warm.delete(modelId);
      warm.set(modelId, model);
      for (const [id, oldest] of [...warm].slice(0, Math.max(0, warm.size - max))) {
        warm.delete(id);
        await engine.unload(oldest.handle);
      }
    },
    async forget(modelId) {
      const kept = warm.get(modelId);
      if (kept === undefined) return;
      warm.delete(modelId);
      await engine.unload(kept.handle);
    },
  };
}
