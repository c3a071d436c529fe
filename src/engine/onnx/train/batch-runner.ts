/** Runner of batches: feeds rows to compiled gradient graphs and reads their results. */
import { entropyCoefficientOf } from "../../../base/training-rows.ts";
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { type Adapter, baseLayout, type Layout, viewOf } from "../model/parameters.ts";
import { rotaryFeeds, type RotaryTables, rotaryTables } from "../model/rope.ts";
import type { BaseWeights } from "../model/base-weights.ts";
import { float32Weights, storedFeeds, storedFormats, type StoredWeights } from "../model/stored-weights.ts";
import { loadRuntime, Program, type Tensors } from "../runtime/program.ts";
import { headName } from "../model/transformer.ts";
import { type TrainBatch, minTrainedEntries, plannedSize, positionsIn, positionsNeeded } from "./batch.ts";
import { batchInputs, type BatchResult, batchResult, EMPTY_RESULT, selectAndPlan } from "./batch-inputs.ts";
import { ACCUMULATOR, gradientGraph, type GradientKind } from "./gradient-graph.ts";
import { graphShape } from "./query-blocks.ts";
import { ProgramCache } from "../runtime/program-cache.ts";

/** Base model as gradient graphs read it. */
export interface FrozenBase {
  readonly config: ModelConfig;
  /** Layout of all parameters. */
  readonly layout: Layout;
  /** Unused if every parameter is trained. */
  readonly weights: BaseWeights;
  /** Rotary tables, each `[positions, r/2]`; `positionsNeeded` gives the number of positions. */
  readonly rotary: RotaryTables;
}

/** Returns a base model with the rotary tables that training needs. @param weights - Empty if every parameter is trained. */
export function frozenBase(config: ModelConfig, weights: BaseWeights): FrozenBase {
  return { config, layout: baseLayout(config), weights, rotary: rotaryTables({ ...config, contextLength: positionsNeeded(config) }) };
}

/** Model that a batch is computed with. */
export interface BatchModel {
  readonly base: FrozenBase;
  readonly lora: Adapter | null;
  /** Layout of the trained parameters. */
  readonly layout: Layout;
  /** Trained parameters, flat: the adapter's, or all of the model's. */
  readonly parameters: Float32Array;
}

/** Batch with the tokens to compute, and what to compute. */
interface PlannedBatch extends NonNullable<ReturnType<typeof selectAndPlan>> {
  readonly loss: LossSpec | null;
  readonly gradients: Float32Array | null;
  /** Weights of the base; empty if every parameter is trained. */
  readonly frozen: StoredWeights;
}

/** Properties of a gradient graph other than the model and the shape of the batch. */
interface ProgramSpec extends Pick<PlannedBatch, "plan" | "frozen"> {
  readonly kind: GradientKind;
  readonly hasEntropyBonus: boolean;
}

/** Max compiled graphs kept per thread count. */
const MAX_PROGRAMS = 8;

/** Runs batches with a fixed number of threads inside one op, and caches compiled graphs. */
export class BatchRunner {
  readonly #threads: number;
  /** Compiled graphs: a program runs only with the thread count it was compiled for. */
  readonly programs = new ProgramCache(MAX_PROGRAMS);

  /** @param threads - Threads inside one op; results do not depend on the number. */
  constructor(threads: number) {
    this.#threads = threads;
  }

  /**
   * Computes a batch. With a loss, adds the gradients to `gradients`, a flat vector in the layout of the trained parameters.
   *
   * Blocks the calling thread while it computes.
   */
  async run(
    model: BatchModel,
    rows: readonly Row[],
    batch: TrainBatch,
    loss: LossSpec | null,
    gradients: Float32Array | null,
  ): Promise<BatchResult> {
    const { config } = model.base;
    const planned = selectAndPlan(config, rows, batch, {
      minEntries: Math.min(minTrainedEntries(config, model.lora !== null), positionsIn(batch)),
      plannedSize: (size) => plannedSize(config, size),
    });
    if (planned === null) return EMPTY_RESULT;
    return model.base.weights.use((frozen) => this.#compute(model, rows, batch, { ...planned, loss, gradients, frozen }));
  }

  /** Computes the tokens of a batch that a plan selects. */
  async #compute(
    model: BatchModel,
    rows: readonly Row[],
    batch: TrainBatch,
    { selection, plan, loss, gradients, frozen }: PlannedBatch,
  ): Promise<BatchResult> {
    const { Tensor } = await loadRuntime();
    const { base, layout, lora, parameters } = model;
    const { config } = base;
    const feeds: Tensors = {
      ...rotaryFeeds(Tensor, config, base.rotary),
      ...batchInputs(
        Tensor,
        { config, lora },
        { rows, batch, selection, slices: plan.headSlices, loss: gradients && loss, masks: "given" },
      ),
      ...(lora ? storedFeeds(Tensor, frozen) : {}),
      ...storedFeeds(Tensor, float32Weights(layout, parameters)),
    };
    const column = () => new Tensor("float32", new Float32Array(selection.selected.length), [selection.selected.length, 1]);
    const fetches: Tensors = { logprob: column(), entropy: column() };
    if (loss && gradients) {
      fetches["loss"] = new Tensor("float32", new Float32Array(1), []);
      for (const parameter of layout.parameters) {
        const accumulator = new Tensor("float32", viewOf(gradients, parameter), parameter.shape);
        feeds[`${ACCUMULATOR}${parameter.name}_in`] = accumulator;
        fetches[ACCUMULATOR + parameter.name] = accumulator;
      }
    }
    const hasEntropyBonus = entropyCoefficientOf(loss) > 0;
    const program = await this.#program(model, batch, { kind: loss?.kind ?? "forward", hasEntropyBonus, plan, frozen });
    await program.run(feeds, fetches);
    return batchResult(selection, fetches, loss !== null);
  }

  #program({ base, lora }: BatchModel, batch: TrainBatch, { kind, hasEntropyBonus, plan, frozen }: ProgramSpec): Promise<Program> {
    const rank = lora?.rank ?? null;
    const shape = graphShape(batch);
    const stored = lora ? storedFormats(frozen, headName(base.config)) : undefined;
    return this.programs.get(JSON.stringify([base.config, kind, hasEntropyBonus, plan, rank, shape, stored && [...stored]]), () => {
      const graph = gradientGraph(base.config, kind, rank, shape, { hasEntropyBonus, plan, mergesAdapters: stored === undefined });
      return Program.compile(graph, `train-${kind}`, { threads: this.#threads, memoryPattern: false, stored });
    });
  }
}
