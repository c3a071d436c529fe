/** The second share of a step's rows, on a thread of its own. */
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import { spawnWorker } from "../../../util/spawn-worker.ts";
import { WorkerClient } from "../worker-rpc.ts";
import type { Batch } from "./batch.ts";
import type { BatchModel, BatchResult, FrozenBase } from "./batch-runner.ts";
import { pickRows } from "./shares.ts";

/** What the thread needs to know of a model once. */
export interface SharedModel {
  readonly config: ModelConfig;
  readonly lora: Adapter | null;
  /** The base under an adapter; models on one base share its weights. Null where every parameter is trained. */
  readonly base: { readonly id: number; readonly weights: Float32Array | null } | null;
  /** In shared memory; the runtime takes none, so the thread copies what is in it. */
  readonly parameters: Float32Array;
}

/** One share. */
export interface ShareTask {
  readonly rows: readonly Row[];
  readonly batches: readonly Batch[];
  readonly loss: LossSpec | null;
  /** Inside one operation. */
  readonly threads: number;
  /** Which parameters are in the shared memory now. */
  readonly version: number;
  /** Memory for the gradients, from an earlier share. */
  readonly memory: Float32Array | null;
}

/** What a share gave: results batch by batch, and with a loss the sum of their gradients. */
export interface ShareResult {
  readonly results: readonly BatchResult[];
  readonly gradients: Float32Array | null;
  /** Programs that the thread had compiled by then. */
  readonly compiled: number;
}

interface Known {
  readonly base: FrozenBase | null;
  readonly parameters: Float32Array;
  version: number;
  memory: Float32Array | null;
}

/** The calling side. */
export class SecondThread {
  readonly #worker: WorkerClient;
  readonly #known = new Map<string, Known>();
  readonly #baseIds = new WeakMap<FrozenBase, number>();
  #nextBase = 0;
  #compiled = 0;

  /** @param onDeath - Called once if the thread dies; its calls reject from then on. */
  constructor(options: { readonly niceness: number }, onDeath: (error: Error) => void) {
    this.#worker = new WorkerClient(spawnWorker("engine/onnx/share-worker", { workerData: options }), () => {}, onDeath);
  }

  /** How many programs it had compiled when its last share was done. */
  get compiled(): number {
    return this.#compiled;
  }

  /** Computes batches of a model whose parameters are those of `version`. */
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

  /** Gives the gradients of a share back, once they were added. */
  reuse(id: string, memory: Float32Array): void {
    const known = this.#known.get(id);
    if (known) known.memory = memory;
  }

  /** Forgets a model. */
  async forget(id: string): Promise<void> {
    if (this.#known.delete(id)) await this.#worker.call("forget", [id]);
  }

  /** Releases what was compiled for other counts of threads; where no count is kept, no model is either. */
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
