/**
 * Trainable models in the process's memory, with the training operations of the engine port; device-trainer.ts is the counterpart for a
 * GPU. Runs in a worker: calls block its thread while they compute.
 */
import { NotFoundError } from "../../../base/errors.ts";
import { type Lease, Leases } from "../../../base/util/leases.ts";
import { loadingBase } from "../../base-failure.ts";
import type { ProcessorPrecision } from "../../engine-info.ts";
import { checkRows } from "../../check-request.ts";
import type { AdamParams, Logprobs, LoraSpec, LossSpec, Row, StatePath } from "../../port.ts";
import { type BaseSource, readModelConfig } from "../model/config.ts";
import { type Adapter, adapterLayout, baseLayout } from "../model/parameters.ts";
import { isLarge } from "../model/size.ts";
import { readState, writeState } from "../model/state.ts";
import { BaseWeights } from "../model/base-weights.ts";
import { float32Weights, storeWeights } from "../model/stored-weights.ts";
import { freshWeights, initialAdapter, readBaseWeights } from "../model/weights.ts";
import { batchLimits, planBatches, shortLimits } from "./batch.ts";
import { type FrozenBase, frozenBase } from "./batch-runner.ts";
import { Optimizer, type OptimizerState } from "./optimizer.ts";
import { requireFinitePass } from "./require-finite.ts";
import { collectResults, type PassResult } from "./summary.ts";
import { MAX_HALF_BATCH_TOKENS, type StartHelper, StepExecutor, type StepModel } from "./step-executor.ts";

/** Model being trained. */
interface TrainableModel extends OptimizerState, StepModel {
  readonly baseId: string;
  readonly parameters: Float32Array;
  /** Releases the base model. */
  readonly release: () => void;
  /** Version of the parameters, incremented with every change. */
  version: number;
  /** Whether anything was added to the gradients since they were last zeroed. */
  hasGradients: boolean;
}

/** Specification of a new model. */
export interface TrainedModelSpec {
  /** Adapter to train; absent = all parameters. */
  readonly lora?: LoraSpec | undefined;
  /** Saved state to start from. */
  readonly from?: StatePath | undefined;
  /** Seed of the initial adapter and of random weights. */
  readonly seed: number;
  /** Whether the base model starts from random weights. */
  readonly fresh?: boolean | undefined;
}

/** Settings of a trainer. */
export interface TrainerOptions {
  /**
   * Threads in all. Of several counts the trainer uses the fastest, found by timing the first steps. Results do not depend on the count.
   */
  readonly threads: number | readonly number[];
  /**
   * Max padded tokens per batch; larger requests are cut into several batches, and their gradients add up. @default 512 to 1024, by the
   * model's shape
   */
  readonly maxBatchTokens?: number | undefined;
  /** Type in which base models under adapters are stored; models with all parameters trained are float32. @default "float32" */
  readonly weightPrecision?: ProcessorPrecision | undefined;
  /** Starts the helper thread, which computes one half of a small model's step. @default none: both halves run on the calling thread */
  readonly startHelper?: StartHelper | undefined;
}

/**
 * Trainable models by id. Adapters on the same base share its weights; a fully trained model has weights of its own. All models share
 * compiled programs and the helper thread.
 */
export class Trainer {
  readonly #options: TrainerOptions;
  readonly #bases = new Leases<string, FrozenBase>();
  readonly #models = new Map<string, TrainableModel>();
  readonly #executor: StepExecutor;
  #optimizer: Optimizer | undefined;
  #nextId = 0;

  constructor(options: TrainerOptions) {
    this.#options = options;
    this.#executor = new StepExecutor([options.threads].flat(), options.startHelper);
  }

  /** Creates a model from the weights of its base, from random ones, or from a saved state, and returns its id. */
  async createModel(base: BaseSource, spec: TrainedModelSpec): Promise<string> {
    const lora = spec.lora ? { rank: spec.lora.rank, alpha: spec.lora.alpha ?? 2 * spec.lora.rank } : null;
    const isFrozen = lora !== null;
    const precision = isFrozen ? this.#options.weightPrecision : undefined;
    const load = () => loadBase(base, { isFrozen, precision, freshSeed: spec.fresh === true ? spec.seed : undefined });
    // The weights of a fully trained model are its own: a base in memory as well would be a second copy. They start from float32 weights.
    const { value, release } = await loadingBase(base.id, async (): Promise<Lease<FrozenBase>> =>
      lora ? this.#bases.lease(baseKey(base, spec), load) : { value: await load(), release: () => undefined },
    );
    try {
      const shared = lora ? value : { ...value, weights: BaseWeights.none };
      const layout = lora ? adapterLayout(shared.config, lora.rank) : shared.layout;
      const model: TrainableModel = {
        id: `model-${this.#nextId++}`,
        baseId: base.id,
        base: shared,
        release,
        lora,
        layout,
        parameters: lora ? initialAdapter(layout, spec.seed) : await value.weights.use(({ flat }) => flat),
        gradients: new Float32Array(layout.length),
        first: new Float32Array(layout.length),
        second: new Float32Array(layout.length),
        step: 0,
        version: 0,
        hasGradients: false,
      };
      if (spec.from !== undefined) await readState(spec.from, this.#identity(model), model);
      this.#models.set(model.id, model);
      return model.id;
    } catch (error) {
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

  /**
   * Updates a model's weights with the accumulated gradients and zeroes the gradients. Returns the gradient norm before clipping and the
   * number of steps taken.
   */
  async optimStep(id: string, adam: AdamParams): Promise<{ gradNorm: number; step: number }> {
    const model = this.#model(id);
    const optimizer = (this.#optimizer ??= await Optimizer.create(this.#executor.maxThreads));
    try {
      const gradNorm = await optimizer.step(model, model.layout, adam);
      model.version++;
      return { gradNorm, step: model.step };
    } finally {
      model.hasGradients = false;
    }
  }

  /** Zeroes a model's optimizer moments and gradients and sets its step to 0. */
  resetOptimizer(id: string): void {
    const model = this.#model(id);
    model.first.fill(0);
    model.second.fill(0);
    dropGradients(model);
    model.step = 0;
  }

  /** Writes parameters, moments and step count into an existing empty directory. */
  async saveState(id: string, path: string): Promise<void> {
    const model = this.#model(id);
    await writeState(path, this.#identity(model), model);
  }

  /** Reads a saved state into a model and zeroes its gradients. */
  async loadState(id: string, path: string): Promise<void> {
    const model = this.#model(id);
    await readState(path, this.#identity(model), model);
    model.version++;
    dropGradients(model);
  }

  /** Returns a copy of the accumulated gradients, flat, in the layout of the trained parameters. */
  gradients(id: string): Float32Array {
    return this.#model(id).gradients.slice();
  }

  /**
   * Returns a copy of the trained weights, for the sampler. The graphs of a large model and the weights of its base are freed, because the
   * rollouts that follow need their memory.
   */
  weights(id: string): { flat: Float32Array; lora: Adapter | null } {
    const model = this.#model(id);
    if (isLarge(model.base.config)) this.#executor.freeIdle(model);
    return { flat: model.parameters.slice(), lora: model.lora };
  }

  /** Frees a model, and its base model if no other model uses it. */
  async unload(id: string): Promise<void> {
    this.#models.get(id)?.release();
    this.#models.delete(id);
    await this.#executor.forget(id);
  }

  #identity(model: TrainableModel) {
    return { base: model.baseId, lora: model.lora, layout: model.layout };
  }

  #model(id: string): TrainableModel {
    const model = this.#models.get(id);
    if (!model) throw new NotFoundError(`The engine holds no trainable model "${id}"; it was unloaded`);
    return model;
  }

  async #run(model: TrainableModel, rows: readonly Row[], loss: LossSpec | null, signal: AbortSignal): Promise<PassResult> {
    checkRows(rows, model.base.config, loss);
    // Batches add into the accumulators one by one: an abort between two batches must restore the earlier gradients.
    const before = loss && model.hasGradients ? model.gradients.slice() : null;
    const limits = batchLimits(model.base.config);
    const { maxBatchTokens } = this.#options;
    const maxTokens = maxBatchTokens ?? (isLarge(model.base.config) ? limits.maxTokens : MAX_HALF_BATCH_TOKENS);
    const all = { ...limits, maxTokens, maxSharing: maxBatchTokens ?? limits.maxSharing };
    const batches = planBatches(rows, loss === null ? shortLimits(rows, all, this.#executor.maxThreads) : all);
    if (loss) model.hasGradients = true;
    try {
      const { results, threads } = await this.#executor.run({ model, rows, batches, loss, signal });
      const { logprobs, metrics } = collectResults(rows, results, loss);
      requireFinitePass(model, logprobs, loss && metrics.loss);
      return { logprobs, metrics: { ...metrics, threads } };
    } catch (error) {
      if (before) model.gradients.set(before);
      else if (loss) dropGradients(model);
      throw error;
    }
  }
}

/** Zeroes a model's accumulated gradients. */
function dropGradients(model: TrainableModel): void {
  model.gradients.fill(0);
  model.hasGradients = false;
}

/** Returns the key of the weights that a model starts from: models with equal keys have equal bases. */
function baseKey({ directory }: BaseSource, { fresh, seed }: TrainedModelSpec): string {
  return fresh === true ? `${directory}#${seed}` : directory;
}

/** Settings of {@link loadBase}. */
interface BaseOptions {
  /** Whether the weights stay as they are. */
  readonly isFrozen: boolean;
  /** Type in which frozen weights are stored. @default "float32" */
  readonly precision: ProcessorPrecision | undefined;
  /** Seed of random weights; undefined to read the weights. */
  readonly freshSeed: number | undefined;
}

/** Loads a base model. */
async function loadBase({ directory }: BaseSource, { isFrozen, precision = "float32", freshSeed }: BaseOptions): Promise<FrozenBase> {
  const config = await readModelConfig(directory);
  const layout = baseLayout(config);
  if (freshSeed !== undefined)
    return frozenBase(config, BaseWeights.kept(await storeWeights(freshWeights(config, layout, freshSeed), layout, precision)));
  if (isFrozen) return frozenBase(config, await BaseWeights.read(directory, config, precision));
  return frozenBase(config, BaseWeights.kept(float32Weights(layout, await readBaseWeights(directory, layout))));
}
