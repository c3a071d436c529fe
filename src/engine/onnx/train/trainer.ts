/** Trainable models in memory and the verbs of the port on them. Runs in a worker: its calls block while they compute. */
import { NotFoundError } from "../../../errors.ts";
import { uniform } from "../../../util/rng.ts";
import { type Held, SharedValues } from "../../../util/shared-values.ts";
import { checkRows } from "../../check-request.ts";
import type { AdamParams, Logprobs, LoraSpec, LossMetrics, LossSpec, Row } from "../../port.ts";
import { type ModelConfig, readModelConfig } from "../model/config.ts";
import { type Adapter, adapterLayout, baseLayout, type Layout, viewOf } from "../model/parameters.ts";
import { readState, writeState } from "../model/state.ts";
import { rotaryTables } from "../model/transformer.ts";
import { initialAdapter, initialWeights, readBaseWeights } from "../model/weights.ts";
import { ProgramCache } from "../program-cache.ts";
import { loadRuntime, Program, type Tensors } from "../runtime.ts";
import { type Batch, batchLimits, forEachTrained, planBatches, selectTrained, tokenInputs } from "./batch.ts";
import { ACCUMULATOR, gradientGraph, type GradientKind, maskName } from "./gradient-graph.ts";
import { batchMasks, queryBlocks } from "./masks.ts";
import { Optimizer, type OptimizerState } from "./optimizer.ts";

/** A base model's frozen weights, shared by the adapters on it. */
interface Base {
  readonly config: ModelConfig;
  readonly layout: Layout;
  readonly weights: Float32Array;
  readonly rotary: { readonly cos: Float32Array; readonly sin: Float32Array };
}

/** A model being trained. */
interface TrainableModel extends OptimizerState {
  readonly baseId: string;
  readonly base: Base;
  /** Lets go of the base. */
  readonly letGo: () => void;
  readonly lora: Adapter | null;
  readonly layout: Layout;
  /** Whether anything was added to the gradients since they were zeroed. */
  hasGradients: boolean;
}

/** What a base identifier resolved to. */
export interface BaseSource {
  readonly id: string;
  readonly directory: string;
}

/** Settings of a trainer. */
export interface TrainerOptions {
  readonly threads: number;
  /** Padded tokens per batch; more are cut into several whose gradients add up. @default 512 to 1024, by the model's shape */
  readonly maxBatchTokens?: number | undefined;
}

export class Trainer {
  readonly #threads: number;
  readonly #maxBatchTokens: number | undefined;
  readonly #bases = new SharedValues<string, Base>();
  readonly #models = new Map<string, TrainableModel>();
  readonly #programs = new ProgramCache(8);
  #optimizer: Promise<Optimizer> | undefined;
  #nextId = 0;

  constructor(options: TrainerOptions) {
    this.#threads = options.threads;
    this.#maxBatchTokens = options.maxBatchTokens;
  }

  async createModel(
    base: BaseSource,
    spec: { lora?: LoraSpec | undefined; from?: string | undefined; seed: number; fresh?: boolean | undefined },
  ): Promise<string> {
    const { value: shared, letGo } = await this.#base(base, spec.fresh === true ? spec.seed : undefined);
    try {
      const lora = spec.lora ? { rank: spec.lora.rank, alpha: spec.lora.alpha ?? 2 * spec.lora.rank } : null;
      const layout = lora ? adapterLayout(shared.config, lora.rank) : shared.layout;
      const seed = BigInt(spec.seed);
      const model: TrainableModel = {
        baseId: base.id,
        base: shared,
        letGo,
        lora,
        layout,
        parameters: lora ? initialAdapter(layout, (index) => uniform(seed, index)) : shared.weights.slice(),
        gradients: new Float32Array(layout.length),
        first: new Float32Array(layout.length),
        second: new Float32Array(layout.length),
        step: 0,
        hasGradients: false,
      };
      if (spec.from !== undefined) await readState(spec.from, this.#identity(model), model);
      const id = `model-${this.#nextId++}`;
      this.#models.set(id, model);
      return id;
    } catch (error) {
      letGo();
      throw error;
    }
  }

  /** New log-probabilities of every row, in the caller's order. */
  async forward(id: string, rows: readonly Row[], signal: AbortSignal): Promise<Logprobs[]> {
    return (await this.#run(this.#model(id), rows, null, signal)).logprobs;
  }

  async forwardBackward(
    id: string,
    rows: readonly Row[],
    loss: LossSpec,
    signal: AbortSignal,
  ): Promise<{ logprobs: Logprobs[]; metrics: LossMetrics }> {
    return this.#run(this.#model(id), rows, loss, signal);
  }

  async optimStep(id: string, adam: AdamParams): Promise<{ gradNorm: number; step: number }> {
    const model = this.#model(id);
    this.#optimizer ??= Optimizer.create(this.#threads);
    const gradNorm = await (await this.#optimizer).step(model, model.layout, adam);
    model.hasGradients = false;
    return { gradNorm, step: model.step };
  }

  resetOptimizer(id: string): void {
    const model = this.#model(id);
    model.first.fill(0);
    model.second.fill(0);
    dropGradients(model);
    model.step = 0;
  }

  async saveState(id: string, path: string): Promise<void> {
    const model = this.#model(id);
    await writeState(path, this.#identity(model), model);
  }

  async loadState(id: string, path: string): Promise<void> {
    const model = this.#model(id);
    await readState(path, this.#identity(model), model);
    dropGradients(model);
  }

  /** A copy of the accumulated gradients, flat, in the layout of what is trained. */
  gradients(id: string): Float32Array {
    return this.#model(id).gradients.slice();
  }

  /** A copy of the trained weights, for the sampler. */
  weights(id: string): { flat: Float32Array; lora: Adapter | null } {
    const model = this.#model(id);
    return { flat: model.parameters.slice(), lora: model.lora };
  }

  /** Frees a model, and with the last on a base the base. */
  unload(id: string): void {
    this.#models.get(id)?.letGo();
    this.#models.delete(id);
  }

  #identity(model: TrainableModel) {
    return { base: model.baseId, lora: model.lora, layout: model.layout };
  }

  #model(id: string): TrainableModel {
    const model = this.#models.get(id);
    if (!model) throw new NotFoundError(`The engine holds no trainable model "${id}"; it was unloaded`);
    return model;
  }

  #base({ directory }: BaseSource, freshSeed: number | undefined): Promise<Held<Base>> {
    return this.#bases.hold(freshSeed === undefined ? directory : `${directory}#${freshSeed}`, async (): Promise<Base> => {
      const config = await readModelConfig(directory);
      const layout = baseLayout(config);
      const weights =
        freshSeed === undefined ? await readBaseWeights(directory, layout) : initialWeights(config, layout, normalFrom(BigInt(freshSeed)));
      return { config, layout, weights, rotary: rotaryTables(config) };
    });
  }

  #program({ base, lora }: TrainableModel, kind: GradientKind, time: number): Promise<Program> {
    const rank = lora?.rank ?? null;
    const blocks = queryBlocks(time);
    return this.#programs.get(JSON.stringify([base.config, kind, rank, blocks]), () =>
      Program.compile(gradientGraph(base.config, kind, rank, blocks), `train-${kind}`, { threads: this.#threads, memoryPattern: false }),
    );
  }

  async #run(
    model: TrainableModel,
    rows: readonly Row[],
    loss: LossSpec | null,
    signal: AbortSignal,
  ): Promise<{ logprobs: Logprobs[]; metrics: LossMetrics }> {
    checkRows(rows, model.base.config, loss);
    const logprobs = rows.map((row) => new Float32Array(row.tokens.length));
    const metrics = { loss: 0, tokens: 0, entropy: 0, positions: 0, padding: 0 };
    // The engine adds into the accumulators as it goes: an abort between batches must leave them as they were.
    const before = loss && model.hasGradients ? model.gradients.slice() : null;
    const limits = batchLimits(model.base.config);
    try {
      for (const batch of planBatches(rows, { ...limits, maxTokens: this.#maxBatchTokens ?? limits.maxTokens })) {
        signal.throwIfAborted();
        if (loss) model.hasGradients = true;
        await this.#runBatch(model, rows, batch, loss, logprobs, metrics);
        // Lets the worker see an abort that arrived meanwhile.
        await new Promise(setImmediate);
      }
    } catch (error) {
      if (before) model.gradients.set(before);
      else if (loss) dropGradients(model);
      throw error;
    }
    return { logprobs, metrics };
  }

  async #runBatch(
    model: TrainableModel,
    rows: readonly Row[],
    batch: Batch,
    loss: LossSpec | null,
    logprobs: Logprobs[],
    metrics: { loss: number; tokens: number; entropy: number; positions: number; padding: number },
  ): Promise<void> {
    const { Tensor } = await loadRuntime();
    const { base, layout, lora } = model;
    const { config } = base;
    const { tokens, positions } = tokenInputs(rows, batch);
    const selection = selectTrained(rows, batch);
    if (selection.count === 0) return;
    const size = selection.selected.length;
    const half = config.headSize / 2;
    const column = (data: Float32Array) => new Tensor("float32", data, [size, 1]);
    const scalar = (x: number) => new Tensor("float32", new Float32Array([x]), []);
    const feeds: Tensors = {
      tokens: new Tensor("int64", tokens, [batch.batch, batch.time]),
      positions: new Tensor("int64", positions, [batch.batch, batch.time]),
      cos: new Tensor("float32", base.rotary.cos, [config.contextLength, half]),
      sin: new Tensor("float32", base.rotary.sin, [config.contextLength, half]),
      ...Object.fromEntries(
        batchMasks(batch, config.heads / config.kvHeads).map(({ data, shape }, block) => [
          maskName(block),
          new Tensor("float32", data, shape),
        ]),
      ),
      selected: new Tensor("int64", selection.selected, [size]),
      targets: new Tensor("int64", selection.targets, [size]),
      ...viewTensors(Tensor, lora ? base.weights : model.parameters, base.layout),
    };
    if (lora) Object.assign(feeds, viewTensors(Tensor, model.parameters, layout), { adapter_scale: scalar(lora.alpha / lora.rank) });
    const fetches: Tensors = { logprob: column(new Float32Array(size)), entropy: column(new Float32Array(size)) };
    if (loss) {
      feeds["weights"] = column(selection.weights);
      if (loss.kind !== "cross-entropy") {
        feeds["advantages"] = column(selection.advantages);
        feeds["old"] = column(selection.old);
        feeds["known"] = column(selection.known);
        feeds["low"] = scalar(1 - loss.epsilon);
        feeds["high"] = scalar(1 + loss.epsilonHigh);
      }
      fetches["loss"] = scalar(0);
      for (const parameter of layout.parameters) {
        const accumulator = new Tensor("float32", viewOf(model.gradients, parameter), parameter.shape);
        feeds[`${ACCUMULATOR}${parameter.name}_in`] = accumulator;
        fetches[ACCUMULATOR + parameter.name] = accumulator;
      }
    }
    const program = await this.#program(model, loss?.kind ?? "forward", batch.time);
    await program.run(feeds, fetches);

    const logprob = fetches["logprob"]!.data as Float32Array;
    const entropy = fetches["entropy"]!.data as Float32Array;
    let at = 0;
    forEachTrained(rows, batch, (_row, t, _place, index) => (logprobs[index]![t] = logprob[at++]!));
    for (let i = 0; i < selection.count; i++) metrics.entropy += entropy[i]!;
    metrics.tokens += selection.count;
    metrics.positions += batch.batch * batch.time;
    metrics.padding += batch.batch * batch.time - batch.rows.reduce((sum, { length }) => sum + length, 0);
    if (loss) metrics.loss += (fetches["loss"]!.data as Float32Array)[0]!;
  }
}

function dropGradients(model: TrainableModel): void {
  model.gradients.fill(0);
  model.hasGradients = false;
}

function viewTensors(Tensor: Awaited<ReturnType<typeof loadRuntime>>["Tensor"], flat: Float32Array, layout: Layout): Tensors {
  return Object.fromEntries(
    layout.parameters.map((parameter) => [parameter.name, new Tensor("float32", viewOf(flat, parameter), parameter.shape)]),
  );
}

/** Box-Muller over the counter generator. */
function normalFrom(seed: bigint): (index: number) => number {
  return (index) => Math.sqrt(-2 * Math.log(uniform(seed, index, 0))) * Math.cos(2 * Math.PI * uniform(seed, index, 1));
}
