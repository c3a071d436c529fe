/** Inputs of a gradient graph that a batch determines, and its results. */
import { entropyCoefficientOf } from "../../../base/training-rows.ts";
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import { tableStart } from "../model/rope.ts";
import type { Tensor, TensorConstructor, Tensors } from "../runtime/program.ts";
import { type TrainBatch, type PaddedBlock, positionsIn } from "./batch.ts";
import { sliceName } from "./head-loss.ts";
import { promptOfPackedRows, type TrainedEntries, selectTrained, type Tokens, tokenInputs } from "./inputs.ts";
import { attentionRanges, packedMasks, promptMasks, type KeyRange } from "./masks.ts";
import { type BatchSize, type MemoryBudget, type MemoryPlan, memoryPlan } from "./memory-plan.ts";
import { keysName, maskName, type MaskSource, PACKED, PROMPT, rangeNames, type Reach, reachesOf } from "./padded-blocks.ts";

/** Results of a batch, except gradients. */
export interface BatchResult {
  /** Log-probabilities of the trained tokens, in the order of `forEachTrained`. */
  readonly logprobs: Float32Array;
  /** Sum of the entropies at the trained tokens, in nats. */
  readonly entropy: number;
  /** Sum of the entropies times the weights of the tokens, in nats. */
  readonly weightedEntropy: number;
  /** Loss of the batch; 0 without a loss. */
  readonly loss: number;
}

/** Rows of a batch and the loss to compute. */
export interface BatchRequest {
  readonly rows: readonly Row[];
  readonly batch: TrainBatch;
  readonly selection: TrainedEntries;
  /** Slices of the trained tokens, see {@link MemoryPlan}. */
  readonly slices: number;
  /** Loss whose gradients are computed; null to compute log-probabilities only. */
  readonly loss: LossSpec | null;
  readonly masks: MaskSource;
}

/** Options of {@link selectAndPlan}. */
export interface PlanOptions {
  /** Min number of entries; padding entries have weight 0. */
  readonly minEntries: number;
  /** Power of two that divides the number of entries. @default 1 */
  readonly entryStep?: number | undefined;
  /** Memory that the batch may take. @default `PROCESSOR_BUDGET` */
  readonly budget?: MemoryBudget | undefined;
  /** Returns the size that a batch is planned as, so that batches of many sizes run through few graphs. @default the size of the batch */
  readonly plannedSize?: ((size: BatchSize) => BatchSize) | undefined;
}

/**
 * Selects the trained tokens of a batch and plans its memory.
 *
 * @returns Null if the batch has no trained tokens.
 */
export function selectAndPlan(
  config: ModelConfig,
  rows: readonly Row[],
  batch: TrainBatch,
  { minEntries, entryStep = 1, budget, plannedSize = (size) => size }: PlanOptions,
): { readonly selection: TrainedEntries; readonly plan: MemoryPlan } | null {
  const trained = batch.groups.reduce((sum, group) => sum + group.trained, 0);
  if (trained === 0) return null;
  const entries = Math.max(trained, minEntries);
  const planned = plannedSize({ positions: positionsIn(batch), entries });
  const plan = memoryPlan(config, planned.positions, planned.entries, budget);
  const step = Math.max(plan.headSlices, entryStep);
  return { plan, selection: selectTrained(rows, batch, Math.ceil(entries / step) * step) };
}

/** Builds all inputs of a gradient graph except weights, accumulators and rotary tables. */
export function batchInputs(
  TensorClass: TensorConstructor,
  { config, lora }: { readonly config: ModelConfig; readonly lora: Adapter | null },
  { rows, batch, selection, slices, loss, masks }: BatchRequest,
): Tensors {
  const size = selection.selected.length;
  const sliced = <T extends Float32Array | BigInt64Array>(name: string, data: T, tensorOf: (part: T) => Tensor): Tensors => {
    const length = size / slices;
    const parts = Array.from({ length: slices }, (_, slice) => data.subarray(slice * length, (slice + 1) * length) as T);
    return Object.fromEntries(parts.map((part, slice) => [sliceName(name, slice), tensorOf(part)]));
  };
  const columns = (name: "weights" | "advantages" | "old" | "known") =>
    sliced(name, selection[name], (part) => new TensorClass("float32", part, [part.length, 1]));
  const scalar = (x: number) => new TensorClass("float32", new Float32Array([x]), []);
  const feeds: Tensors = {
    ...blockInputs(TensorClass, rows, batch, config, masks),
    selected: new TensorClass("int64", selection.selected, [size]),
    ...sliced("targets", selection.targets, (part) => new TensorClass("int64", part, [part.length])),
  };
  if (lora) feeds["adapter_scale"] = scalar(lora.alpha / lora.rank);
  if (loss === null) return feeds;
  Object.assign(feeds, columns("weights"));
  if (loss.kind === "cross-entropy") return feeds;
  const coefficient = entropyCoefficientOf(loss);
  return {
    ...feeds,
    ...columns("advantages"),
    ...columns("old"),
    ...columns("known"),
    low: scalar(1 - loss.epsilon),
    high: scalar(1 + loss.epsilonHigh),
    ...(coefficient > 0 ? { entropy_coef: scalar(coefficient) } : {}),
  };
}

/** Reads the results of a run from its outputs, which lie in the process's memory. */
export function batchResult(selection: TrainedEntries, outputs: Tensors, hasLoss: boolean): BatchResult {
  const entropies = outputs["entropy"]!.data as Float32Array;
  let entropy = 0;
  let weightedEntropy = 0;
  for (let i = 0; i < selection.count; i++) {
    entropy += entropies[i]!;
    weightedEntropy += selection.weights[i]! * entropies[i]!;
  }
  return {
    logprobs: (outputs["logprob"]!.data as Float32Array).slice(0, selection.count),
    entropy,
    weightedEntropy,
    loss: hasLoss ? (outputs["loss"]!.data as Float32Array)[0]! : 0,
  };
}

/** Result of a batch without trained tokens. */
export const EMPTY_RESULT: BatchResult = { logprobs: new Float32Array(0), entropy: 0, weightedEntropy: 0, loss: 0 };

/** Builds the tensors with tokens, positions and masks of a batch's padded blocks. */
function blockInputs(
  TensorClass: TensorConstructor,
  rows: readonly Row[],
  batch: TrainBatch,
  config: ModelConfig,
  source: MaskSource,
): Tensors {
  const { prompts, packedRows } = tokenInputs(rows, batch, (inputs) => tableStart(config, inputs));
  const feeds: Tensors = {
    ...tokenTensors(TensorClass, PACKED, batch.packedRows, packedRows),
    ...attentionTensors(TensorClass, PACKED, batch, config, source),
  };
  if (batch.prompts === null || prompts === null) return feeds;
  const owners = promptOfPackedRows(batch, batch.prompts);
  return {
    ...feeds,
    ...tokenTensors(TensorClass, PROMPT, batch.prompts, prompts),
    ...attentionTensors(TensorClass, PROMPT, batch, config, source),
    prompt_of: new TensorClass("float32", owners, [batch.packedRows.count, batch.prompts.count]),
  };
}

/** Builds the tensors with the tokens and positions of a padded block. */
function tokenTensors(TensorClass: TensorConstructor, prefix: string, block: PaddedBlock, { tokens, positions }: Tokens): Tensors {
  const { count, time, blocks } = block;
  return {
    [`${prefix}tokens`]: new TensorClass("int64", tokens, [count * time]),
    [`${prefix}positions`]: new TensorClass("int64", positions, [count, blocks, time / blocks]),
  };
}

/** Builds the masks of a padded block, or the ranges that a graph computes them from, for every reach of the model's layers. */
function attentionTensors(
  TensorClass: TensorConstructor,
  prefix: typeof PROMPT | typeof PACKED,
  batch: TrainBatch,
  config: ModelConfig,
  source: MaskSource,
): Tensors {
  const copies = config.heads / config.kvHeads;
  const isPrompt = prefix === PROMPT;
  const { count } = isPrompt ? batch.prompts! : batch.packedRows;
  const feeds: Tensors = {};
  for (const reach of reachesOf(config)) {
    const window = reach === "full" ? Infinity : config.window!.size;
    if (source === "ranges") {
      for (const [block, range] of attentionRanges(batch, isPrompt, copies, window).entries()) {
        Object.assign(feeds, rangeTensors(TensorClass, range, count, { prefix, block, reach }));
      }
    } else {
      const masks = isPrompt ? promptMasks(batch.prompts!, copies, window) : packedMasks(batch, copies, window);
      for (const [block, { data, shape }] of masks.entries()) {
        feeds[maskName(prefix, block, reach)] = new TensorClass("float32", data, shape);
      }
    }
  }
  return feeds;
}

/** Builds the tensors with the ranges of one block of queries, for `count` rows. */
function rangeTensors(
  TensorClass: TensorConstructor,
  { first, last, lastPrompt, firstPrompt, lines, keys }: KeyRange,
  count: number,
  { prefix, block, reach }: { readonly prefix: string; readonly block: number; readonly reach: Reach },
): Tensors {
  const names = rangeNames(prefix, block, reach);
  const perLine = (data: Float32Array) => new TensorClass("float32", data, [count, 1, lines, 1]);
  const keyIndices = Float32Array.from({ length: keys }, (_, key) => key);
  return {
    [names.first]: perLine(first),
    ...(reach === "window" ? { [names.firstPrompt]: perLine(firstPrompt) } : {}),
    [names.last]: perLine(last),
    [names.lastPrompt]: new TensorClass("float32", lastPrompt, [count, 1, 1, 1]),
    [keysName(prefix, block)]: new TensorClass("float32", keyIndices, [keys]),
  };
}
