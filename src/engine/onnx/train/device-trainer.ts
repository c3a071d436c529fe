/**
 * Trainable models in the memory of a device (GPU), with the training operations of the engine port; trainer.ts is the counterpart for the
 * processor. Weights, moments and gradients stay on the device: a step sends rows and returns log-probabilities, entropies and the gradient
 * norm.
 */
import { NotFoundError } from "../../../base/errors.ts";
import { checkRows } from "../../check-request.ts";
import { loadingBase } from "../../base-failure.ts";
import type { AdamParams, Logprobs, LossSpec, Row } from "../../port.ts";
import type { BaseSource } from "../model/config.ts";
import type { DeviceBase, DeviceBases } from "../model/device-bases.ts";
import { type Adapter, adapterLayout, baseLayout, type Layout } from "../model/parameters.ts";
import { readState, type StateVectors, writeState } from "../model/state.ts";
import { initialAdapter } from "../model/weights.ts";
import type { DeviceMemory } from "../runtime/device-memory.ts";
import { DeviceVector } from "../runtime/device-vector.ts";
import { type TrainBatch, deviceBatchLimits, planBatches, positionsIn } from "./batch.ts";
import type { BatchResult } from "./batch-inputs.ts";
import { DeviceBatchRunner } from "./device-batch-runner.ts";
import { DeviceOptimizer, type DeviceVectors, groupsOf } from "./device-optimizer.ts";
import { type DeviceBudget, deviceBudget, keptBytesPerToken } from "./memory-plan.ts";
import { probabilityBytes } from "./query-blocks.ts";
import { requireFinitePass } from "./require-finite.ts";
import { collectResults, type PassResult } from "./summary.ts";
import type { TrainedModelSpec } from "./trainer.ts";

/** Trainable model with its vectors on the device. */
interface DeviceModel {
  readonly baseId: string;
  readonly base: DeviceBase;
  readonly lora: Adapter | null;
  /** Layout of the trained parameters, with large parameters in pieces. */
  readonly layout: Layout;
  readonly vectors: DeviceVectors;
  /** Releases the base model. */
  readonly release: () => void;
  step: number;
}

/** Weights of a model for the sampler of the same device: the tensors themselves, held until the vector is released. */
export interface DeviceWeights {
  readonly weights: DeviceVector;
  readonly lora: Adapter | null;
}

/** Trainable models by id. */
export class DeviceTrainer {
  readonly #memory: DeviceMemory;
  readonly #bases: DeviceBases;
  readonly #budget: DeviceBudget;
  readonly #optimizer: DeviceOptimizer;
  readonly #runner: DeviceBatchRunner;
  readonly #makeRoom: () => Promise<void>;
  readonly #models = new Map<string, DeviceModel>();
  /** Bytes that the running pass keeps for its gradient; 0 while none runs, and in a pass without gradient. */
  #neededBytes = 0;
  #nextId = 0;

  /**
   * @param makeRoom - Called before a pass with gradient; resolves when other users of the memory leave `pendingBytes`. @default at once
   */
  constructor(memory: DeviceMemory, bases: DeviceBases, budget = deviceBudget(), makeRoom = () => Promise.resolve()) {
    this.#memory = memory;
    this.#bases = bases;
    this.#budget = budget;
    this.#makeRoom = makeRoom;
    this.#optimizer = new DeviceOptimizer(memory);
    this.#runner = new DeviceBatchRunner(memory, budget);
  }

  /** Bytes that the running pass is about to allocate. */
  get pendingBytes(): number {
    return Math.max(0, this.#neededBytes - this.#runner.activationBytes);
  }

  /** Frees the buffers that batches reuse, unless a pass runs. */
  freeBuffers(): void {
    if (this.#neededBytes === 0) this.#runner.clear();
  }

  /** Creates a model from the weights of its base, from random ones, or from a saved state, and returns its id. */
  async createModel(base: BaseSource, spec: TrainedModelSpec): Promise<string> {
    const freshSeed = spec.fresh === true ? spec.seed : undefined;
    const options = { freshSeed, isTrained: spec.lora === undefined };
    const { value: shared, release } = await loadingBase(base.id, () => this.#bases.lease(base.directory, options));
    /** Vectors of the model so far, released if a later one or the state cannot be loaded. */
    const held: DeviceVector[] = [];
    const hold = (vector: DeviceVector): DeviceVector => {
      held.push(vector);
      return vector;
    };
    try {
      const lora = spec.lora ? { rank: spec.lora.rank, alpha: spec.lora.alpha ?? 2 * spec.lora.rank } : null;
      const layout = lora ? adapterLayout(shared.config, lora.rank) : shared.layout;
      const groups = groupsOf(layout);
      const parameters = lora
        ? await DeviceVector.upload(this.#memory, layout.parameters, initialAdapter(layout, spec.seed))
        : shared.weights.clone();
      const model: DeviceModel = {
        baseId: base.id,
        base: shared,
        lora,
        layout,
        vectors: {
          parameters: hold(parameters),
          gradients: hold(await DeviceVector.zeros(this.#memory, layout.parameters)),
          first: hold(await DeviceVector.zeros(this.#memory, groups)),
          second: hold(await DeviceVector.zeros(this.#memory, groups)),
        },
        release,
        step: 0,
      };
      if (spec.from !== undefined) await this.#load(model, spec.from);
      const id = `model-${this.#nextId++}`;
      this.#models.set(id, model);
      return id;
    } catch (error) {
      for (const vector of held) vector.release();
      release();
      throw error;
    }
  }

  /** Computes new log-probabilities of every row, in the caller's order. */
  async forward(id: string, rows: readonly Row[], signal: AbortSignal): Promise<Logprobs[]> {
    return (await this.#run(this.#model(id), rows, null, signal)).logprobs;
  }

  /**
   * Computes log-probabilities and loss of the rows and adds their gradients. After an error or an abort the gradients are as before the
   * call.
   */
  async forwardBackward(id: string, rows: readonly Row[], loss: LossSpec, signal: AbortSignal): Promise<PassResult> {
    return this.#run(this.#model(id), rows, loss, signal);
  }

  /** Updates a model's weights with the accumulated gradients and zeroes the gradients. */
  async optimStep(id: string, adam: AdamParams): Promise<{ gradNorm: number; step: number }> {
    const model = this.#model(id);
    const { vectors, layout } = model;
    // The step of a large model needs the memory of the buffers for new parameters and moments.
    if (4 * layout.length > this.#budget.pooledGradientBytes) this.#runner.clear();
    try {
      const gradNorm = await this.#optimizer.step(vectors, layout, adam, model.step + 1);
      model.step++;
      return { gradNorm, step: model.step };
    } finally {
      await vectors.gradients.clear();
    }
  }

  /** Zeroes a model's optimizer moments and gradients and sets its step to 0. */
  async resetOptimizer(id: string): Promise<void> {
    const model = this.#model(id);
    for (const vector of [model.vectors.first, model.vectors.second, model.vectors.gradients]) await vector.clear();
    model.step = 0;
  }

  /** Writes parameters, moments and step count into an existing empty directory. */
  async saveState(id: string, path: string): Promise<void> {
    const model = this.#model(id);
    const { vectors, layout, step } = model;
    const parameters = await vectors.parameters.download(layout.length);
    const first = await vectors.first.download(layout.length);
    const second = await vectors.second.download(layout.length);
    await writeState(path, this.#identity(model), { parameters, first, second, step });
  }

  /** Reads a saved state into a model and zeroes its gradients. */
  async loadState(id: string, path: string): Promise<void> {
    await this.#load(this.#model(id), path);
  }

  async #load(model: DeviceModel, path: string): Promise<void> {
    const { vectors, layout } = model;
    const empty = () => new Float32Array(layout.length);
    const stored: StateVectors = { parameters: empty(), first: empty(), second: empty(), step: 0 };
    await readState(path, this.#identity(model), stored);
    for (const name of ["parameters", "first", "second"] as const) await vectors[name].write(stored[name]);
    await vectors.gradients.clear();
    model.step = stored.step;
  }

  /** Returns a copy of the accumulated gradients, flat, in the layout of the trained parameters. */
  gradients(id: string): Promise<Float32Array> {
    const { vectors, layout } = this.#model(id);
    return vectors.gradients.download(layout.length);
  }

  /** Returns the trained weights as they are now. The caller must release them. */
  weights(id: string): DeviceWeights {
    const { vectors, lora } = this.#model(id);
    return { weights: vectors.parameters.clone(), lora };
  }

  /** Frees a model, and its base model if nothing else uses it. With the last model, frees the buffers that batches reuse. */
  unload(id: string): Promise<void> {
    const model = this.#models.get(id);
    this.#models.delete(id);
    if (model) {
      for (const vector of Object.values(model.vectors)) (vector as DeviceVector).release();
      model.release();
    }
    if (this.#models.size === 0) this.#runner.clear();
    return Promise.resolve();
  }

  #identity({ baseId, base, lora, layout }: DeviceModel) {
    return { base: baseId, lora, layout: lora ? layout : baseLayout(base.config) };
  }

  #model(id: string): DeviceModel {
    const model = this.#models.get(id);
    if (!model) throw new NotFoundError(`The engine holds no trainable model "${id}"; it was unloaded`);
    return model;
  }

  async #run(model: DeviceModel, rows: readonly Row[], loss: LossSpec | null, signal: AbortSignal): Promise<PassResult> {
    const { base, vectors, layout } = model;
    checkRows(rows, base.config, loss);
    const before = vectors.gradients.clone();
    const transferred = { uploaded: 0, downloaded: 0 };
    try {
      const results = new Map<TrainBatch, BatchResult>();
      const batches = planBatches(rows, deviceBatchLimits(base.config, this.#budget));
      if (loss !== null) {
        const keptBytesOf = (batch: TrainBatch) =>
          positionsIn(batch) * keptBytesPerToken(base.config) + probabilityBytes(base.config, batch);
        const keptBytes = Math.max(...batches.map(keptBytesOf));
        this.#neededBytes = Math.min(this.#budget.keptBytes, keptBytes);
        await this.#makeRoom();
      }
      for (const batch of batches) {
        signal.throwIfAborted();
        results.set(batch, await this.#runner.run({ ...model, ...vectors }, rows, batch, loss, transferred));
        // Between two batches the sampler decodes a token, and an abort message is received.
        await new Promise(setImmediate);
      }
      const { logprobs, metrics } = collectResults(rows, results, loss);
      if (logprobs.some((row) => row.some((each) => !Number.isFinite(each))) || !Number.isFinite(metrics.loss))
        requireFinitePass({ layout, parameters: await vectors.parameters.download(layout.length) }, logprobs, loss && metrics.loss);
      before.release();
      const { uploaded: uploadedBytes, downloaded: downloadedBytes } = transferred;
      const device = { name: this.#memory.device.name, adapter: null, bytes: this.#memory.bytes, uploadedBytes, downloadedBytes };
      return { logprobs, metrics: { ...metrics, device } };
    } catch (error) {
      vectors.gradients.become(before);
      throw error;
    } finally {
      this.#neededBytes = 0;
    }
  }
}
