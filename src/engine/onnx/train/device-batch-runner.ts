/** Runner of batches on a device (GPU): feeds rows to compiled gradient graphs, and provides the memory of their large outputs. */
import { entropyCoefficientOf } from "../../../base/training-rows.ts";
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { type DeviceBase, storedInputs } from "../model/device-bases.ts";
import type { Adapter, Layout } from "../model/parameters.ts";
import { BufferPool, type PooledTensors, releaseAll } from "../runtime/buffer-pool.ts";
import { addTransfer, type TransferCount } from "../runtime/device.ts";
import type { DeviceMemory } from "../runtime/device-memory.ts";
import type { DeviceVector } from "../runtime/device-vector.ts";
import { ProgramCache } from "../runtime/program-cache.ts";
import { joinTables, loadRuntime, Program, tableOf, type Tensor, type Tensors } from "../runtime/program.ts";
import { MIN_ROWS } from "../runtime/thread-limits.ts";
import { positionsIn, type TrainBatch } from "./batch.ts";
import { batchInputs, type BatchResult, batchResult, EMPTY_RESULT, selectAndPlan } from "./batch-inputs.ts";
import { ACCUMULATOR, gradientGraph } from "./gradient-graph.ts";
import { keptShapes } from "./kept-activations.ts";
import { type DeviceBudget, keptBytesPerToken, type MemoryPlan } from "./memory-plan.ts";
import { deviceGraphShape, type GraphShape, PADDING_STEP } from "./query-blocks.ts";

/** Max compiled graphs kept. */
const MAX_PROGRAMS = 8;

/** Model in a device's memory that a batch is computed with. */
export interface DeviceBatchModel {
  readonly base: DeviceBase;
  readonly lora: Adapter | null;
  /** Layout of the trained parameters. */
  readonly layout: Layout;
  /** Trained parameters: the adapter's, or all of the model's. */
  readonly parameters: DeviceVector;
  /** Gradients that the gradient of the batch is added to. */
  readonly gradients: DeviceVector;
}

/** Runs batches on a device, and caches compiled graphs and buffers. */
export class DeviceBatchRunner {
  readonly #memory: DeviceMemory;
  readonly #budget: DeviceBudget;
  readonly #programs = new ProgramCache(MAX_PROGRAMS);
  readonly #keptShapes = new WeakMap<Program, ReturnType<typeof keptShapes>>();
  /** Buffers for kept activations. */
  readonly #activations: BufferPool;
  /** Buffers for gradient sums. */
  readonly #gradients: BufferPool;

  constructor(memory: DeviceMemory, budget: DeviceBudget) {
    this.#memory = memory;
    this.#budget = budget;
    this.#activations = new BufferPool(memory, budget.pooledBytes);
    this.#gradients = new BufferPool(memory, budget.pooledGradientBytes);
  }

  /**
   * Computes a batch. With a loss, replaces the gradients by their sum with the batch's gradient, in other tensors.
   *
   * @param transferred - Count that the transferred bytes are added to.
   */
  async run(
    model: DeviceBatchModel,
    rows: readonly Row[],
    batch: TrainBatch,
    loss: LossSpec | null,
    transferred: TransferCount,
  ): Promise<BatchResult> {
    const { base, lora, layout, parameters, gradients } = model;
    const { config } = base;
    const planned = selectAndPlan(config, rows, batch, { minEntries: MIN_ROWS, entryStep: PADDING_STEP, budget: this.#budget });
    if (planned === null) return EMPTY_RESULT;
    const { selection, plan } = planned;
    const { Tensor } = await loadRuntime();
    const inputs = batchInputs(Tensor, { config, lora }, { rows, batch, selection, slices: plan.headSlices, loss, masks: "ranges" });
    const program = await this.#program(model, batch, loss, plan, (name) => inputs[name]?.type === "float32");
    const sums = loss ? await this.#gradientSums(layout) : new Map<string, never>();
    const feeds = joinTables(
      base.rotary.feeds(),
      inputs,
      lora ? base.weights.feeds() : {},
      parameters.feeds(),
      loss ? gradients.feeds((name) => `${ACCUMULATOR}${name}_in`) : {},
    );
    const outputs = { logprob: null, entropy: null, ...(loss ? { loss: null } : {}) };
    const results = await this.#runWithKept(program, feeds, joinTables<Tensor | null>(outputs, tensorsOf(sums, ACCUMULATOR))).catch(
      (error: unknown) => {
        releaseAll(sums);
        throw error;
      },
    );
    const read = program.inputNames.map((name) => feeds[name]!);
    addTransfer(transferred, read, Object.values(results));
    for (const [name, sum] of sums) gradients.set(name, sum);
    return batchResult(selection, results, loss !== null);
  }

  /** Bytes of the buffers for kept activations. */
  get activationBytes(): number {
    return this.#activations.bytes;
  }

  /** Frees the buffers that no batch and no model uses. */
  clear(): void {
    this.#activations.clear();
    this.#gradients.clear();
  }

  /** Returns a buffer for the gradient sum of each trained parameter. */
  #gradientSums({ parameters }: Layout): Promise<PooledTensors> {
    return this.#gradients.acquire(new Map(parameters.map(({ name, shape }) => [name, shape])));
  }

  /** Runs a program with buffers for its large kept activations. */
  async #runWithKept(program: Program, feeds: Tensors, fetches: Readonly<Record<string, Tensor | null>>): Promise<Tensors> {
    const shapes = [...this.#keptShapes.get(program)!(feeds)];
    const large = shapes.filter(([, shape]) => 4 * shape.reduce((size, dim) => size * dim, 1) >= this.#budget.minPooledBytes);
    const kept = await this.#activations.acquire(new Map(large), true);
    try {
      return await program.run(feeds, joinTables(fetches, tensorsOf(kept)));
    } finally {
      releaseAll(kept);
    }
  }

  /** Returns the graph shape of a batch, which keeps as much for the gradient as the budget permits. */
  #shape(config: ModelConfig, batch: TrainBatch): GraphShape {
    return deviceGraphShape(config, batch, this.#budget.keptBytes - positionsIn(batch) * keptBytesPerToken(config));
  }

  /** Returns the compiled graph of a batch. @param hosted - Whether runs take an input from the memory of the process. */
  #program(
    { base, lora }: DeviceBatchModel,
    batch: TrainBatch,
    loss: LossSpec | null,
    plan: MemoryPlan,
    hosted: (input: string) => boolean,
  ): Promise<Program> {
    const kind = loss?.kind ?? "forward";
    const hasEntropyBonus = entropyCoefficientOf(loss) > 0;
    const [rank, shape] = [lora?.rank ?? null, this.#shape(base.config, batch)];
    return this.#programs.get(JSON.stringify([base.config, kind, hasEntropyBonus, rank, shape, plan]), async () => {
      const stored = storedInputs(base.layout, base.precision);
      const options = {
        hasEntropyBonus,
        masks: "ranges",
        plan,
        layout: base.layout,
        mergesAdapters: stored.size === 0,
        // A joined matrix is float32, and the runtime would keep it for a layer that is recomputed.
        joinsAdapters: stored.size === 0 && plan.recomputedLayers === 0,
        hasOutputBuffers: this.#budget.pooledBytes > 0,
      } as const;
      const graph = gradientGraph(base.config, kind, rank, shape, options);
      const program = await Program.compile(graph, `train-${kind}`, { threads: 1, device: this.#memory.device, hosted, stored });
      this.#keptShapes.set(program, keptShapes(graph));
      return program;
    });
  }
}

/** Returns tensors by name. @param prefix - Prefix of the names. @default none */
function tensorsOf(tensors: PooledTensors, prefix = ""): Tensors {
  return tableOf(Array.from(tensors, ([name, { tensor }]) => [prefix + name, tensor]));
}
