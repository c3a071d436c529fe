/** Client of the trainer's helper thread, which computes one of the two data-parallel halves of a step. */
import { spawnWorker } from "../../../base/util/spawn-worker.ts";
import { WorkerClient } from "../../../base/util/worker-rpc.ts";
import type { BatchModel, FrozenBase } from "../train/batch-runner.ts";
import { rowsOfHalf } from "../train/halves.ts";
import type { HalfResult, Step, StepHelper } from "../train/step-executor.ts";
import type { HalfTask, HelperMethods, SharedModel } from "./helper-worker.ts";

/** Model that the helper thread has. */
interface IntroducedModel {
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
  /** Models that the helper thread has, by identifier. */
  readonly #introduced = new Map<string, IntroducedModel>();
  /** Numbers of base models, by which the helper thread finds weights that it already has. */
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
    const introduced = this.#introduced.get(model.id) ?? (await this.#introduce(model.id, model));
    if (introduced.version !== model.version) introduced.parameters.set(model.parameters);
    introduced.version = model.version;
    // The memory is transferred to the helper thread, so it can be used once.
    const { memory } = introduced;
    introduced.memory = null;
    const task: HalfTask = { ...rowsOfHalf(rows, batches), loss, threads, version: model.version, memory };
    const transfer = memory ? [memory.buffer as ArrayBuffer] : [];
    const result = await this.#worker.call("run", [model.id, task], { signal, transfer });
    this.#compiled = result.compiled;
    return result;
  }

  /** Keeps the gradient memory of a task, whose gradients were added, for the next task. */
  reuse(id: string, memory: Float32Array): void {
    const introduced = this.#introduced.get(id);
    if (introduced) introduced.memory = memory;
  }

  /** Releases a model on the helper thread. */
  async forget(id: string): Promise<void> {
    if (this.#introduced.delete(id)) await this.#worker.call("forget", [id]);
  }

  /** Keeps the programs of these thread counts and releases all others. With an empty set, also releases all models. */
  async keep(threads: ReadonlySet<number>): Promise<void> {
    if (threads.size === 0) await Promise.all([...this.#introduced.keys()].map((id) => this.forget(id)));
    await this.#worker.call("keep", [threads]);
  }

  /** Sends a model to the helper thread, with the weights of its base unless another model has the same base. */
  async #introduce(id: string, { base, lora, parameters }: BatchModel): Promise<IntroducedModel> {
    const shared = new Float32Array(new SharedArrayBuffer(parameters.byteLength));
    const introduced: IntroducedModel = { base: lora ? base : null, parameters: shared, version: -1, memory: null };
    const isBaseThere = [...this.#introduced.values()].some((other) => other.base === base);
    const weights = lora && !isBaseThere ? await base.weights.use((stored) => stored) : null;
    const sharedBase = lora ? { id: this.#baseId(base), weights } : null;
    const model: SharedModel = { config: base.config, lora, base: sharedBase, parameters: shared };
    await this.#worker.call("introduce", [id, model]);
    this.#introduced.set(id, introduced);
    return introduced;
  }

  /** Returns the number of a base model, assigned at its first use. */
  #baseId(base: FrozenBase): number {
    const id = this.#baseIds.get(base) ?? this.#nextBase++;
    this.#baseIds.set(base, id);
    return id;
  }
}
