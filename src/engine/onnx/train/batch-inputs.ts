/** Inputs of a gradient graph that a batch determines, and its results. */
import { entropyCoefficientOf } from "../../../training-rows.ts";
import type { LossSpec, Row } from "../../port.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";
import type { Batch, PaddedBlock } from "./batch.ts";
import { promptOfPackedRows, type Selection, type Tokens, tokenInputs } from "./inputs.ts";
import { attentionRanges, type Mask, packedMasks, promptMasks, type Range } from "./masks.ts";
import { keysName, maskName, type MaskSource, PACKED, PROMPT, rangeNames } from "./padded-blocks.ts";
import { queryBlocks } from "./query-blocks.ts";

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

/** Rows of a batch and the loss to compute. */
export interface BatchRequest {
  readonly rows: readonly Row[];
  readonly batch: Batch;
  readonly selection: Selection;
  /** Loss whose gradients are computed; null to compute log-probabilities only. */
  readonly loss: LossSpec | null;
  readonly masks: MaskSource;
}

/** Builds all inputs of a gradient graph except weights, accumulators and rotary tables. */
export function batchInputs(
  TensorClass: TensorConstructor,
  { config, lora }: { readonly config: ModelConfig; readonly lora: Adapter | null },
  { rows, batch, selection, loss, masks }: BatchRequest,
): Tensors {
  const size = selection.selected.length;
  const column = (data: Float32Array) => new TensorClass("float32", data, [size, 1]);
  const scalar = (x: number) => new TensorClass("float32", new Float32Array([x]), []);
  const feeds: Tensors = {
    ...blockInputs(TensorClass, rows, batch, config.heads / config.kvHeads, masks),
    selected: new TensorClass("int64", selection.selected, [size]),
    targets: new TensorClass("int64", selection.targets, [size]),
  };
  if (lora) feeds["adapter_scale"] = scalar(lora.alpha / lora.rank);
  if (loss === null) return feeds;
  feeds["weights"] = column(selection.weights);
  if (loss.kind === "cross-entropy") return feeds;
  const coefficient = entropyCoefficientOf(loss);
  return {
    ...feeds,
    advantages: column(selection.advantages),
    old: column(selection.old),
    known: column(selection.known),
    low: scalar(1 - loss.epsilon),
    high: scalar(1 + loss.epsilonHigh),
    ...(coefficient > 0 ? { entropy_coef: scalar(coefficient) } : {}),
  };
}

/** Reads the results of a run from its outputs, which lie in the process's memory. */
export function batchResult(selection: Selection, outputs: Tensors, hasLoss: boolean): BatchResult {
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
export const NOTHING: BatchResult = { logprobs: new Float32Array(0), entropy: 0, weightedEntropy: 0, loss: 0 };

/** Builds the tensors with tokens, positions and masks of a batch's padded blocks. */
function blockInputs(TensorClass: TensorConstructor, rows: readonly Row[], batch: Batch, copies: number, source: MaskSource): Tensors {
  const feeds: Tensors = {};
  const floats = (data: Float32Array, shape: readonly number[]) => new TensorClass("float32", data, shape);
  const addMasks = (prefix: string, masks: readonly Mask[]) =>
    masks.forEach(({ data, shape }, block) => (feeds[maskName(prefix, block)] = floats(data, shape)));
  const addRanges = (prefix: string, { count }: PaddedBlock, ranges: readonly Range[]) =>
    ranges.forEach(({ first, last, prompt, lines, keys }, block) => {
      const names = rangeNames(prefix, block);
      feeds[names.first] = floats(first, [count, 1, lines, 1]);
      feeds[names.last] = floats(last, [count, 1, lines, 1]);
      feeds[names.prompt] = floats(prompt, [count, 1, 1, 1]);
      feeds[keysName(prefix, block)] = floats(
        Float32Array.from({ length: keys }, (_, key) => key),
        [keys],
      );
    });
  const add = (prefix: string, block: PaddedBlock, { tokens, positions }: Tokens) => {
    const { count, time } = block;
    const blocks = queryBlocks(time);
    feeds[`${prefix}tokens`] = new TensorClass("int64", tokens, [count * time]);
    feeds[`${prefix}positions`] = new TensorClass("int64", positions, [count, blocks, time / blocks]);
    if (source === "ranges") return addRanges(prefix, block, attentionRanges(batch, prefix === PROMPT, copies));
    addMasks(prefix, prefix === PROMPT ? promptMasks(block, copies) : packedMasks(batch, copies));
  };
  const { prompts, packedRows } = tokenInputs(rows, batch);
  add(PACKED, batch.packedRows, packedRows);
  if (batch.prompts && prompts) {
    add(PROMPT, batch.prompts, prompts);
    feeds["prompt_of"] = floats(promptOfPackedRows(batch, batch.prompts), [batch.packedRows.count, batch.prompts.count]);
  }
  return feeds;
}
