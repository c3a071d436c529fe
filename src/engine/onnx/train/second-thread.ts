/** The second share of a step's rows, on a thread of its own. */
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import { spawnWorker } from "../spawn-worker.ts";
import { WorkerClient } from "../worker-rpc.ts";
import type { Batch } from "./batch.ts";
import type { BatchModel, BatchResult } from "./batch-runner.ts";
import { pickRows } from "./shares.ts";

/** What the thread needs to know of a model once; the runtime takes no shared memory, so it copies what is in it. */
export interface SharedModel {
  readonly config: ModelConfig;
  readonly lora: Adapter | null;
  /** Of the base, where an adapter is trained. */
  readonly frozen: Float32Array | null;
  readonly parameters: Float32Array;
}

/** One share. */
export interface ShareTask {
  readonly rows: readonly Row[];
  readonly batches: readonly Batch[];
  readonly loss: LossSpec | null;
  /** Whether the shared parameters are others than before. */
  readonly isNew: boolean;
  /** Memory for the gradients, from an earlier share. */
  readonly memory: Float32Array | null;
}

/** What a share gave: results batch by batch, and with a loss the sum of their gradients. */
export interface ShareResult {
  readonly results: readonly BatchResult[];
  readonly gradients: Float32Array | null;
}

interface Known {
  readonly parameters: Float32Array;
  version: number;
  memory: Float32Array | null;
}

/** The calling side. */
export class SecondThread {
  readonly #worker: WorkerClient;
  readonly #known = new Map<string, Known>();

  /** @param onFailure - Told once when the thread died by itself: it is of no more use. */
  constructor(options: { readonly threads: number; readonly niceness: number }, onFailure: () => void) {
    this.#worker = new WorkerClient(spawnWorker("../share-worker", import.meta.url, { workerData: options }), () => {}, onFailure);
  }

  /** Computes batches of a model whose parameters are those of `version`. */
  async run(
    id: string,
    model: BatchModel,
    version: number,
    task: Pick<ShareTask, "rows" | "batches" | "loss">,
    signal: AbortSignal,
  ): Promise<ShareResult> {
    const known = this.#known.get(id) ?? (await this.#introduce(id, model));
    const isNew = known.version !== version;
    if (isNew) known.parameters.set(model.parameters);
    known.version = version;
    const { memory } = known;
    known.memory = null;
    const share: ShareTask = { ...pickRows(task.rows, task.batches), loss: task.loss, isNew, memory };
    return this.#worker.call("run", [id, share], { signal, transfer: memory ? [memory.buffer as ArrayBuffer] : [] });
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

  async #introduce(id: string, { base, lora, parameters }: BatchModel): Promise<Known> {
    const shared = (values: Float32Array) => {
      const copy = new Float32Array(new SharedArrayBuffer(values.byteLength));
      copy.set(values);
      return copy;
    };
    const known: Known = { parameters: shared(parameters), version: -1, memory: null };
    const model: SharedModel = { config: base.config, lora, frozen: lora ? shared(base.weights) : null, parameters: known.parameters };
    this.#known.set(id, known);
    await this.#worker.call("introduce", [id, model]);
    return known;
  }
}
