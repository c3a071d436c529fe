/**
 * Trainable models in the process's memory, with the training operations of the engine port; device-trainer.ts is the counterpart for a
 * GPU. Runs in a worker thread, which is blocked while a batch computes; aborts are noticed between batches.
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
import { type BatchLimits, batchLimits, planBatches, shortLimits } from "./batch.ts";
import { type FrozenBase, frozenBase } from "./batch-runner.ts";
import { Optimizer, type OptimizerState } from "./optimizer.ts";
import { requireFinitePass } from "./require-finite.ts";
import { collectResults, type PassResult } from "./summary.ts";
import { MAX_HALF_BATCH_TOKENS, type StartHelper, StepExecutor, type StepModel } from "./step-executor.ts";

/** Model being trained. */
interface TrainableModel extends OptimizerState, StepModel {
  readonly baseId: string;
  /** Ends the lease of a shared base; no effect for a fully trained model. */
  readonly release: () => void;
  /** Version of the parameters, incremented with every change. */
  version: number;
  /** Whether `gradients` may differ from zero. */
  hasGradients: boolean;
}

/** Specification of a new model. */
export interface TrainedModelSpec {
  /** Adapter to train. @default none: all parameters are trained */
  readonly lora?: LoraSpec | undefined;
  /** Saved state that the model starts from. @default none: the model starts from its base */
  readonly from?: StatePath | undefined;
  /** Seed of the initial adapter and of random weights. */
  readonly seed: number;
  /** Whether the weights of the base model are random instead of read. @default false */
  readonly fresh?: boolean | undefined;
}

/** Settings of a trainer. */
export interface TrainerOptions {
  /**
   * Total number of threads, or candidates, of which the fastest is kept after the first steps were timed. Results do not depend on the
   * count.
   */
  readonly threads: number | readonly number[];
  /**
   * Max padded tokens in a batch of several rows; larger requests are cut into several batches, and their gradients add up.
   *
   * @default `MAX_HALF_BATCH_TOKENS` for rows of a small model that share no prompt, else by the model's shape, see {@link batchLimits}
   */
  readonly maxBatchTokens?: number | undefined;
  /** Data type of the weights of a frozen base model. Fully trained models have float32 weights. @default "float32" */
  readonly weightPrecision?: ProcessorPrecision | undefined;
  /** Starts the helper thread, which computes one half of a small model's step. Without it, the calling thread computes both halves. */
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
    // Adapters lease a shared base. A fully trained model loads a private float32 copy, which becomes its parameters.
    const { value: loaded, release } = await loadingBase(base.id, async (): Promise<Lease<FrozenBase>> =>
      isFrozen ? this.#bases.lease(baseKey(base, spec), load) : { value: await load(), release: () => undefined },
    );
    try {
      const { layout, parameters, base: modelBase } = lora ? adapterParts(loaded, lora.rank, spec.seed) : await fullyTrainedParts(loaded);
      const model: TrainableModel = {
        id: `model-${this.#nextId++}`,
        baseId: base.id,
        base: modelBase,
        release,
        lora,
        layout,
        parameters,
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

  /** Computes the log-probabilities of every row under the current weights, in the caller's order. */
  async forward(id: string, rows: readonly Row[], signal: AbortSignal): Promise<Logprobs[]> {
    return (await this.#run(this.#model(id), rows, null, signal)).logprobs;
  }

  /**
   * Computes log-probabilities and loss of the rows, and adds the gradients of the loss to the accumulated gradients. An error or an abort
   * leaves the accumulated gradients as they were before the call.
   */
  async forwardBackward(id: string, rows: readonly Row[], loss: LossSpec, signal: AbortSignal): Promise<PassResult> {
    return this.#run(this.#model(id), rows, loss, signal);
  }

  /**
   * Updates a model's weights with the accumulated gradients and zeroes the gradients, also on an error. Returns the gradient norm before
   * clipping and the number of steps taken.
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
   * Returns a copy of the trained weights, for the sampler.
   *
   * For a large model, frees the compiled graphs of all models, and the weights of its base if they can be read again, because the rollouts
   * that follow need the memory.
   */
  weights(id: string): { flat: Float32Array; lora: Adapter | null } {
    const model = this.#model(id);
    if (isLarge(model.base.config)) this.#executor.freeIdle(model);
    return { flat: model.parameters.slice(), lora: model.lora };
  }

  /** Frees a model, and its base if no other model leases it. */
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
    // Each batch adds to the gradients, so an error or an abort after the first batch must restore the earlier gradients.
    const before = loss && model.hasGradients ? model.gradients.slice() : null;
    const batches = planBatches(rows, this.#limitsFor(rows, model, loss));
    if (loss) model.hasGradients = true;
    try {
      const { results, threads } = await this.#executor.run({ model, rows, batches, loss, signal });
      const { logprobs, metrics } = collectResults(rows, results, loss);
      requireFinitePass(model, logprobs, loss === null ? null : metrics.loss);
      return { logprobs, metrics: { ...metrics, threads } };
    } catch (error) {
      if (before) model.gradients.set(before);
      else if (loss) dropGradients(model);
      throw error;
    }
  }

  /**
   * Returns the limits for cutting rows into batches: the limits of the model's shape with the configured `maxBatchTokens`. Without a loss,
   * a batch of few tokens is not padded.
   */
  #limitsFor(rows: readonly Row[], { base: { config } }: TrainableModel, loss: LossSpec | null): BatchLimits {
    const { maxBatchTokens } = this.#options;
    const shapeLimits = batchLimits(config);
    const limits = {
      ...shapeLimits,
      maxTokens: maxBatchTokens ?? (isLarge(config) ? shapeLimits.maxTokens : MAX_HALF_BATCH_TOKENS),
      maxSharing: maxBatchTokens ?? shapeLimits.maxSharing,
    };
    return loss === null ? shortLimits(rows, limits, this.#executor.maxThreads) : limits;
  }
}

/** Parts of a new model that depend on whether an adapter or every parameter is trained. */
type ModelParts = Pick<TrainableModel, "base" | "layout" | "parameters">;

/** Returns the parts of a model with a new adapter on a shared base. */
function adapterParts(base: FrozenBase, rank: number, seed: number): ModelParts {
  const layout = adapterLayout(base.config, rank);
  return { base, layout, parameters: initialAdapter(layout, seed) };
}

/** Returns the parts of a fully trained model. The weights of `base` become the parameters. */
async function fullyTrainedParts(base: FrozenBase): Promise<ModelParts> {
  // The array may be used after the callback, because the weights of `loadBase` are kept, and kept weights are never freed.
  const parameters = await base.weights.use(({ flat }) => flat);
  return { base: { ...base, weights: BaseWeights.none }, layout: base.layout, parameters };
}

/** Zeroes a model's accumulated gradients. */
function dropGradients(model: TrainableModel): void {
  model.gradients.fill(0);
  model.hasGradients = false;
}

/** Returns the key by which adapters share a base: its directory, and the seed of random weights. */
function baseKey({ directory }: BaseSource, { fresh, seed }: TrainedModelSpec): string {
  return fresh === true ? `${directory}#${seed}` : directory;
}

/** Settings of {@link loadBase}. */
interface BaseOptions {
  /** Whether the weights are never updated, because only an adapter is trained. */
  readonly isFrozen: boolean;
  /** Data type of random or frozen weights; read weights that are trained are float32. @default "float32" */
  readonly precision: ProcessorPrecision | undefined;
  /** Seed of random weights; undefined to read the weights from the directory. */
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
