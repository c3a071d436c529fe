/** Runner of batches: feeds rows to compiled gradient graphs and reads their results. */
import { entropyCoefficientOf } from "../../../training-rows.ts";
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import { type Adapter, type Layout, viewOf } from "../model/parameters.ts";
import { loadRuntime, Program, type Tensor, type TensorConstructor, type Tensors } from "../runtime/program.ts";
import { type Batch, minTrainedEntries, type PaddedBlock, positionsIn } from "./batch.ts";
import { ACCUMULATOR, gradientGraph, type GradientKind } from "./gradient-graph.ts";
import { promptOfPackedRows, selectTrained, type Tokens, tokenInputs } from "./inputs.ts";
import { sliceName } from "./head-loss.ts";
import { packedMasks, type Mask, promptMasks } from "./masks.ts";
import { type MemoryPlan, memoryPlan } from "./memory-plan.ts";
import { graphShape } from "./query-blocks.ts";
import { PACKED, maskName, PROMPT } from "./padded-blocks.ts";
import { ProgramCache } from "../runtime/program-cache.ts";

/** Base model as gradient graphs read it. */
export interface FrozenBase {
  readonly config: ModelConfig;
  readonly layout: Layout;
  /** Unused if every parameter is trained. */
  readonly weights: Float32Array;
  /** Rotary tables `[positions, headSize / 2]`; `positionsNeeded` gives the number of positions. */
  readonly rotary: { readonly cos: Float32Array; readonly sin: Float32Array };
}

/** Model that a batch is computed with. */
export interface BatchModel {
  readonly base: FrozenBase;
  readonly lora: Adapter | null;
  /** Layout of the trained parameters. */
  readonly layout: Layout;
  readonly parameters: Float32Array;
}

/** Results of a batch, except gradients. */
export interface BatchResult {
  /** Log-probabilities of the trained tokens, in the order of `forEachTrained`. */
  readonly logprobs: Float32Array;
  /** Sum of the entropies at the trained tokens, in nats. */
  readonly entropy: number;
  /** Sum of the entropies times the weights of the tokens, in nats. */
  readonly weightedEntropy: number;
  readonly loss: number;
}

/** Runs batches with a fixed number of threads inside one op, and caches compiled graphs. */
export class BatchRunner {
  readonly #threads: number;
  readonly #programs: ProgramCache;

  /** @param threads - Threads inside one op; results do not depend on the number. */
  constructor(threads: number, programs = new ProgramCache(8)) {
    this.#threads = threads;
    this.#programs = programs;
  }

  /**
   * Computes a batch. With a loss, adds the gradients to `gradients`, a flat vector in the layout of the trained parameters.
   *
   * Blocks the calling thread while it computes.
   */
  async run(
    model: BatchModel,
    rows: readonly Row[],
    batch: Batch,
    loss: LossSpec | null,
    gradients: Float32Array | null,
  ): Promise<BatchResult> {
    const { Tensor } = await loadRuntime();
    const { base, layout, lora, parameters } = model;
    const { config } = base;
    const trained = batch.groups.reduce((sum, group) => sum + group.trained, 0);
    if (trained === 0) return { logprobs: new Float32Array(0), entropy: 0, weightedEntropy: 0, loss: 0 };
    const entries = Math.max(trained, minTrainedEntries(config, lora !== null));
    const plan = memoryPlan(config, positionsIn(batch), entries);
    const size = Math.ceil(entries / plan.headSlices) * plan.headSlices;
    const selection = selectTrained(rows, batch, size);
    const half = config.headSize / 2;
    const column = (data: Float32Array) => new Tensor("float32", data, [data.length, 1]);
    const sliced = <T extends Float32Array | BigInt64Array>(name: string, data: T, tensorOf: (part: T) => Tensor): Tensors => {
      const length = size / plan.headSlices;
      const parts = Array.from({ length: plan.headSlices }, (_, slice) => data.subarray(slice * length, (slice + 1) * length) as T);
      return Object.fromEntries(parts.map((part, slice) => [sliceName(name, slice), tensorOf(part)]));
    };
    const scalar = (x: number) => new Tensor("float32", new Float32Array([x]), []);
    const views = (flat: Float32Array, of: Layout): Tensors =>
      Object.fromEntries(of.parameters.map((each) => [each.name, new Tensor("float32", viewOf(flat, each), each.shape)]));
    const feeds: Tensors = {
      cos: new Tensor("float32", base.rotary.cos, [base.rotary.cos.length / half, half]),
      sin: new Tensor("float32", base.rotary.sin, [base.rotary.sin.length / half, half]),
      ...blockFeeds(Tensor, rows, batch, config.heads / config.kvHeads),
      selected: new Tensor("int64", selection.selected, [size]),
      ...sliced("targets", selection.targets, (part) => new Tensor("int64", part, [part.length])),
      ...views(lora ? base.weights : parameters, base.layout),
    };
    if (lora) Object.assign(feeds, views(parameters, layout), { adapter_scale: scalar(lora.alpha / lora.rank) });
    const fetches: Tensors = { logprob: column(new Float32Array(size)), entropy: column(new Float32Array(size)) };
    const coefficient = entropyCoefficientOf(loss);
    if (loss && gradients) {
      Object.assign(feeds, sliced("weights", selection.weights, column));
      if (loss.kind !== "cross-entropy") {
        for (const name of ["advantages", "old", "known"] as const) Object.assign(feeds, sliced(name, selection[name], column));
        feeds["low"] = scalar(1 - loss.epsilon);
        feeds["high"] = scalar(1 + loss.epsilonHigh);
        if (coefficient > 0) feeds["entropy_coef"] = scalar(coefficient);
      }
      fetches["loss"] = scalar(0);
      for (const parameter of layout.parameters) {
        const accumulator = new Tensor("float32", viewOf(gradients, parameter), parameter.shape);
        feeds[`${ACCUMULATOR}${parameter.name}_in`] = accumulator;
        fetches[ACCUMULATOR + parameter.name] = accumulator;
      }
    }
    const program = await this.#program(model, batch, { kind: loss?.kind ?? "forward", hasEntropyBonus: coefficient > 0, plan });
    await program.run(feeds, fetches);

    const entropies = fetches["entropy"]!.data as Float32Array;
    let entropy = 0;
    let weightedEntropy = 0;
    for (let i = 0; i < selection.count; i++) {
      entropy += entropies[i]!;
      weightedEntropy += selection.weights[i]! * entropies[i]!;
    }
    return {
      logprobs: (fetches["logprob"]!.data as Float32Array).slice(0, selection.count),
      entropy,
      weightedEntropy,
      loss: loss ? (fetches["loss"]!.data as Float32Array)[0]! : 0,
    };
  }

  #program(
    { base, lora }: BatchModel,
    batch: Batch,
    { kind, hasEntropyBonus, plan }: { readonly kind: GradientKind; readonly hasEntropyBonus: boolean; readonly plan: MemoryPlan },
  ): Promise<Program> {
    const rank = lora?.rank ?? null;
    const shape = graphShape(batch);
    return this.#programs.get(JSON.stringify([base.config, kind, hasEntropyBonus, plan, rank, shape]), () => {
      const graph = gradientGraph(base.config, kind, rank, shape, { hasEntropyBonus, plan });
      return Program.compile(graph, `train-${kind}`, { threads: this.#threads, memoryPattern: false });
    });
  }
}

/** Builds the tensors with tokens, positions and masks of a batch's padded blocks. */
function blockFeeds(Tensor: TensorConstructor, rows: readonly Row[], batch: Batch, copies: number): Tensors {
  const feeds: Tensors = {};
  const add = (prefix: string, { count, time }: PaddedBlock, { tokens, positions }: Tokens, masks: readonly Mask[]) => {
    feeds[`${prefix}tokens`] = new Tensor("int64", tokens, [count * time]);
    feeds[`${prefix}positions`] = new Tensor("int64", positions, [count, masks.length, time / masks.length]);
    masks.forEach(({ data, shape }, block) => (feeds[maskName(prefix, block)] = new Tensor("float32", data, shape)));
  };
  const { prompts, packedRows } = tokenInputs(rows, batch);
  add(PACKED, batch.packedRows, packedRows, packedMasks(batch, copies));
  if (batch.prompts && prompts) {
    add(PROMPT, batch.prompts, prompts, promptMasks(batch.prompts, copies));
    feeds["prompt_of"] = new Tensor("float32", promptOfPackedRows(batch, batch.prompts), [batch.packedRows.count, batch.prompts.count]);
  }
  return feeds;
}
