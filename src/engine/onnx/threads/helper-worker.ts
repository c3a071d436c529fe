/** Entry point of the trainer's helper thread, which computes one data-parallel half of a step. */
import { setPriority } from "node:os";
import { parentPort, workerData } from "node:worker_threads";
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { type Adapter, adapterLayout } from "../model/parameters.ts";
import { BaseWeights } from "../model/base-weights.ts";
import type { StoredWeights } from "../model/stored-weights.ts";
import type { TrainBatch } from "../train/batch.ts";
import type { BatchResult } from "../train/batch-inputs.ts";
import { type BatchModel, frozenBase } from "../train/batch-runner.ts";
import { Runners } from "../train/runners.ts";
import type { HalfResult } from "../train/step-executor.ts";
import { Handover, serveCalls } from "../../../base/util/worker-rpc.ts";
import { getOrThrow } from "../../../base/util/values.ts";

/** Description of a model, sent to the helper thread once. */
export interface SharedModel {
  readonly config: ModelConfig;
  readonly lora: Adapter | null;
  /**
   * Base model under an adapter; null if every parameter is trained. Models on one base share its weights: `weights` is null if the helper
   * thread already has them.
   */
  readonly base: { readonly id: number; readonly weights: StoredWeights | null } | null;
  /** Trained parameters in shared memory. The runtime does not accept shared memory, so the helper thread copies them. */
  readonly parameters: Float32Array;
}

/** Task of the helper thread: one data-parallel half of a step. */
export interface HalfTask {
  readonly rows: readonly Row[];
  readonly batches: readonly TrainBatch[];
  readonly loss: LossSpec | null;
  /** Threads inside one op. */
  readonly threads: number;
  /** Version of the parameters now in shared memory. */
  readonly version: number;
  /** Memory for the gradients, from an earlier task; null to allocate it. */
  readonly memory: Float32Array | null;
}

/** Result of a task, with the state of the thread. */
export interface HalfTaskResult extends HalfResult {
  /** Programs that the helper thread has compiled so far. */
  readonly compiled: number;
}

const { niceness } = workerData as { niceness: number };
if (process.platform === "linux" && niceness > 0) setPriority(0, niceness);

const runners = new Runners();

/** Model of this thread, with the shared memory that its parameters are copied from. */
interface IntroducedModel {
  readonly model: BatchModel;
  /** Number of the base model under an adapter; null if every parameter is trained. */
  readonly baseId: number | null;
  readonly shared: Float32Array;
  /** Version of the shared parameters that was copied last; −1 = none. */
  version: number;
}

/** Models of this thread by identifier. */
const models = new Map<string, IntroducedModel>();

/** Returns the weights of a base: the weights that were sent, or the copy of another model on the same base. */
function baseWeights(base: SharedModel["base"]): BaseWeights {
  if (base === null) return BaseWeights.none;
  if (base.weights !== null) return BaseWeights.kept(base.weights);
  return [...models.values()].find(({ baseId }) => baseId === base.id)!.model.base.weights;
}

const methods = {
  /** Adds a model, before the first task on it. */
  introduce: ([id, { config, lora, base, parameters }]: readonly [string, SharedModel]) => {
    const frozen = frozenBase(config, baseWeights(base));
    const trained = lora ? adapterLayout(config, lora.rank) : frozen.layout;
    const model = { base: frozen, lora, layout: trained, parameters: new Float32Array(trained.length) };
    models.set(id, { model, baseId: base?.id ?? null, shared: parameters, version: -1 });
  },
  /** Computes one half of a step; gradients are null for a forward pass. */
  run: async ([id, { rows, batches, loss, threads, version, memory }]: readonly [string, HalfTask], signal: AbortSignal) => {
    const introduced = getOrThrow(models, id);
    const { model, shared } = introduced;
    if (introduced.version !== version) model.parameters.set(shared);
    introduced.version = version;
    const gradients = loss && (memory ?? new Float32Array(model.layout.length));
    if (memory) memory.fill(0);
    const results: BatchResult[] = [];
    for (const batch of batches) {
      signal.throwIfAborted();
      results.push(await runners.of(threads).run(model, rows, batch, loss, gradients));
      // Yields to the event loop so that an abort message is received.
      await new Promise(setImmediate);
    }
    return new Handover(
      { results, gradients, compiled: runners.compiled } satisfies HalfTaskResult,
      gradients ? [gradients.buffer as ArrayBuffer] : [],
    );
  },
  /** Releases the programs of all other thread counts. */
  keep: ([threads]: readonly [ReadonlySet<number>]) => runners.keep(threads),
  /** Releases a model. */
  forget: ([id]: readonly [string]) => {
    models.delete(id);
  },
};

/** Methods of the helper thread. */
export type HelperMethods = typeof methods;

serveCalls(parentPort!, methods);
