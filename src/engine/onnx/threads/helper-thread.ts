/** Client of the trainer's helper thread, which computes one of the two data-parallel halves of a step. */
import { spawnWorker } from "../../../base/util/spawn-worker.ts";
import { WorkerClient } from "../../../base/util/worker-rpc.ts";
import type { BatchModel, FrozenBase } from "../train/batch-runner.ts";
import { rowsOfHalf } from "../train/halves.ts";
import type { HalfResult, Step, StepHelper } from "../train/step-executor.ts";
import type { HalfTask, HelperMethods, SharedModel } from "./helper-worker.ts";

/** Model that the helper thread has. */
interface Known {
  /** Base model under an adapter; null if every parameter is trained. */
  readonly base: FrozenBase | null;
  /** Trained parameters in shared memory. */
  readonly parameters: Float32Array;
  /** Version of the parameters in shared memory; −1 = none. */
  version: number;
  /** Memory for the gradients of the next task; null = the thread allocates it. */
  memory: Float32Array | null;
}

/** Handle of the helper thread on the calling side. */
export class HelperThread implements StepHelper {
  readonly #worker: WorkerClient<HelperMethods>;
  readonly #known = new Map<string, Known>();
  readonly #baseIds = new WeakMap<FrozenBase, number>();
  #nextBase = 0;
  #compiled = 0;

  /** @param onDeath - Called once if the helper thread dies; all later calls reject. */
  constructor(options: { readonly niceness: number }, onDeath: (error: Error) => void) {
    this.#worker = new WorkerClient(spawnWorker("engine/onnx/threads/helper-worker", { workerData: options }), { onDeath });
  }

  /** Programs that the helper thread had compiled when its last task was done. */
  get compiled(): number {
    return this.#compiled;
  }

  /** Computes the batches of a step on the helper thread. Sends the model first if the thread does not have it. */
  async run({ model, rows, batches, loss, signal }: Step, threads: number): Promise<HalfResult> {
    const known = this.#known.get(model.id) ?? (await this.#introduce(model.id, model));
    if (known.version !== model.version) known.parameters.set(model.parameters);
    known.version = model.version;
    const { memory } = known;
    known.memory = null;
    const task: HalfTask = { ...rowsOfHalf(rows, batches), loss, threads, version: model.version, memory };
    const transfer = memory ? [memory.buffer as ArrayBuffer] : [];
    const result = await this.#worker.call("run", [model.id, task], { signal, transfer });
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

  /** Keeps the programs of these thread counts and releases all others. With an empty set, also releases all models. */
  async keep(threads: ReadonlySet<number>): Promise<void> {
    if (threads.size === 0) await Promise.all([...this.#known.keys()].map((id) => this.forget(id)));
    await this.#worker.call("keep", [threads]);
  }

  /** Sends a model to the helper thread, with the weights of its base unless another model has the same base. */
  async #introduce(id: string, { base, lora, parameters }: BatchModel): Promise<Known> {
    const shared = new Float32Array(new SharedArrayBuffer(parameters.byteLength));
    const known: Known = { base: lora ? base : null, parameters: shared, version: -1, memory: null };
    const isKnown = [...this.#known.values()].some((other) => other.base === base);
    const weights = lora && !isKnown ? base.weights : null;
    const model: SharedModel = {
      config: base.config,
      lora,
      base: lora ? { id: this.#baseId(base), weights } : null,
      parameters: shared,
    };
    await this.#worker.call("introduce", [id, model]);
    this.#known.set(id, known);
    return known;
  }

  #baseId(base: FrozenBase): number {
    const id = this.#baseIds.get(base) ?? this.#nextBase++;
    this.#baseIds.set(base, id);
    return id;
  }
}
