import { join } from "node:path";
import type { Engine, LoraSpec, ModelHandle } from "../../engine/port.ts";
import type { LoraConfig } from "../../schema/index.ts";
import type { CheckpointRow, JobRow, ModelRow } from "../store/tables.ts";

/** A model in the engine's memory and what its weights are. */
export interface WarmModel {
  readonly handle: ModelHandle;
  readonly checkpointId: string;
  readonly optimizerKind: JobRow["type"];
}

/** What a job starts from. */
export interface AcquireOptions {
  readonly model: ModelRow;
  readonly checkpoint: CheckpointRow;
  readonly kind: JobRow["type"];
  /** Progress of the same job from before a crash, relative to the root; wins over the checkpoint. */
  readonly progressDir: string | null;
  readonly signal: AbortSignal;
}

/** Keeps what was trained last loaded, so that the next job of the same model starts at once. */
export interface WarmModels {
  /** A model that nobody else holds, with weights of the checkpoint or the progress, and moments of the job's own kind or none. */
  acquire(options: AcquireOptions): Promise<ModelHandle>;
  /** Gives a model back whose weights are those of a checkpoint. */
  keep(modelId: string, model: WarmModel): Promise<void>;
  forget(modelId: string): Promise<void>;
}

/** The adapter settings of a model, as `createModel` takes them. */
export function loraOf(model: ModelRow): { readonly lora: LoraSpec } | Record<string, never> {
  if (model.lora === null) return {};
  const { rank, alpha } = JSON.parse(model.lora) as LoraConfig;
  return { lora: { rank, ...(alpha === undefined ? {} : { alpha }) } };
}

/** See {@link WarmModels}. */
export function createWarmModels({
  engine,
  root,
  max,
}: {
  readonly engine: Engine;
  readonly root: string;
  readonly max: number;
}): WarmModels {
  // In the order of use, oldest first.
  const warm = new Map<string, WarmModel>();

  async function load({ model, checkpoint, kind, progressDir, signal }: AcquireOptions): Promise<ModelHandle> {
    const from = progressDir ?? checkpoint.state_dir;
    const handle = await engine.createModel(
      { base: model.base_model, ...loraOf(model), ...(from === null ? {} : { from: join(root, from) }), seed: model.seed },
      { signal },
    );
    const loadedKind = progressDir === null ? checkpoint.optimizer_kind : kind;
    if (loadedKind !== null && loadedKind !== kind) await resetOrUnload(handle, signal);
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
      const { model, checkpoint, kind, progressDir, signal } = options;
      const kept = warm.get(model.id);
      warm.delete(model.id);
      if (kept === undefined || engine.holds?.(kept.handle) === false) return load(options);
      if (progressDir !== null || kept.checkpointId !== checkpoint.id) {
        await engine.unload(kept.handle);
        return load(options);
      }
      if (kept.optimizerKind !== kind) await resetOrUnload(kept.handle, signal);
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
