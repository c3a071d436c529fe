/** Client of the helper thread, which computes one of the two data-parallel halves of a step. */
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import { spawnWorker } from "../../../util/spawn-worker.ts";
import { WorkerClient } from "../worker-rpc.ts";
import type { Batch } from "./batch.ts";
import type { BatchModel, BatchResult, FrozenBase } from "./batch-runner.ts";
import { pickRows } from "./shares.ts";

/** Description of a model, sent to the helper thread once. */
export interface SharedModel {
  readonly config: ModelConfig;
  readonly lora: Adapter | null;
  /**
   * Base model under an adapter; null if every parameter is trained. Models on one base share its weights: `weights` is null if the helper
   * thread already has them.
   */
  readonly base: { readonly id: number; readonly weights: Float32Array | null } | null;
  /** Trained parameters in shared memory. The runtime does not accept shared memory, so the helper thread copies them. */
  readonly parameters: Float32Array;
}

/** Task of the helper thread: one data-parallel half of a step. */
export interface ShareTask {
  readonly rows: readonly Row[];
  readonly batches: readonly Batch[];
  readonly loss: LossSpec | null;
  /** Threads inside one op. */
  readonly threads: number;
  /** Version of the parameters now in shared memory. */
  readonly version: number;
  /** Memory for the gradients, from an earlier task; null to allocate it. */
  readonly memory: Float32Array | null;
}

/** Result of a task: one result per batch and, with a loss, the sum of the batches' gradients. */
export interface ShareResult {
  readonly results: readonly BatchResult[];
  readonly gradients: Float32Array | null;
  /** Programs that the helper thread has compiled so far. */
  readonly compiled: number;
}

interface Known {
  readonly base: FrozenBase | null;
  readonly parameters: Float32Array;
  version: number;
  memory: Float32Array | null;
}

/** Handle of the helper thread on the calling side. */
export class SecondThread {
  readonly #worker: WorkerClient;
  readonly #known = new Map<string, Known>();
  readonly #baseIds = new WeakMap<FrozenBase, number>();
  #nextBase = 0;
  #compiled = 0;

  /** @param onDeath - Called once if the helper thread dies; all later calls reject. */
  constructor(options: { readonly niceness: number }, onDeath: (error: Error) => void) {
    this.#worker = new WorkerClient(spawnWorker("engine/onnx/share-worker", { workerData: options }), () => {}, onDeath);
  }

  /** Programs that the helper thread had compiled when its last task was done. */
  get compiled(): number {
    return this.#compiled;
  }

  /**
   * Computes batches of a model on the helper thread, with the parameters of `version`. Sends the model first if the thread does not have
   * it.
   */
  async run(
    id: string,
    model: BatchModel,
    version: number,
    task: Pick<ShareTask, "rows" | "batches" | "loss" | "threads">,
    signal: AbortSignal,
  ): Promise<ShareResult> {
    const known = this.#known.get(id) ?? (await this.#introduce(id, model));
    if (known.version !== version) known.parameters.set(model.parameters);
    known.version = version;
    const { memory } = known;
    known.memory = null;
    const share: ShareTask = { ...task, ...pickRows(task.rows, task.batches), version, memory };
    const transfer = memory ? [memory.buffer as ArrayBuffer] : [];
    const result = await this.#worker.call<ShareResult>("run", [id, share], { signal, transfer });
    this.#compiled = result.compiled;
    return result;
  }

  /** Returns the gradient memory of a task for reuse by the next one, once the gradients were added. */
  reuse(id: string, memory: Float32Array): void {
    const known = this.#known.get(id);
    if (known) known.memory = memory;
  }

  /** Releases a model on the helper thread. */
  async forget(id: string): Promise<void> {
    if (this.#known.delete(id)) await this.#worker.call("forget", [id]);
  }

  /** Releases the programs of all other thread counts; with an empty set, also all models. */
  async keep(threads: ReadonlySet<number>): Promise<void> {
    if (threads.size === 0) await Promise.all([...this.#known.keys()].map((id) => this.forget(id)));
    await this.#worker.call("keep", [threads]);
  }

  async #introduce(id: string, { base, lora, parameters }: BatchModel): Promise<Known> {
    const shared = new Float32Array(new SharedArrayBuffer(parameters.byteLength));
    const known: Known = { base: lora ? base : null, parameters: shared, version: -1, memory: null };
    const isKnown = [...this.#known.values()].some((other) => other.base === base);
    const weights = lora && !isKnown ? base.weights.slice() : null;
    const model: SharedModel = {
      config: base.config,
      lora,
      base: lora ? { id: this.#baseId(base), weights } : null,
      parameters: shared,
    };
    await this.#worker.call("introduce", [id, model], { transfer: weights ? [weights.buffer as ArrayBuffer] : [] });
    this.#known.set(id, known);
    return known;
  }

  #baseId(base: FrozenBase): number {
    const id = this.#baseIds.get(base) ?? this.#nextBase++;
    this.#baseIds.set(base, id);
    return id;
  }
}
