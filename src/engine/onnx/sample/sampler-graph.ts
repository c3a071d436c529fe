/** Common parts of the prefill and decode graphs: everything except attention. */
import {
  add,
  after,
  type Dim,
  gatherRows,
  Graph,
  join,
  logSoftmax,
  matmul,
  reshape,
  softmax,
  transpose,
  type Value,
} from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { adapterNames, type LinearSpec } from "../model/parameters.ts";
import { isLarge } from "../model/size.ts";
import { type AttentionLayer, type BatchDims, type ModelInputs, type Projection, rotaryInputs } from "../model/model-inputs.ts";
import { logits, transformer } from "../model/transformer.ts";
import type { AdapterUse } from "./place.ts";
import { first, getOrThrow } from "../../../base/util/values.ts";

/** Returns the names of a layer's cache inputs and outputs. */
export const cacheNames = (layer: number) => ({
  pastKeys: `past_k${layer}`,
  pastValues: `past_v${layer}`,
  keys: `k${layer}`,
  values: `v${layer}`,
});

/** Returns the cache outputs of all layers, each with the input of the same keys or values. */
export function cachePairs({ layers }: Pick<ModelConfig, "layers">): readonly { readonly output: string; readonly input: string }[] {
  return Array.from({ length: layers }, (_, layer) => cacheNames(layer)).flatMap(({ keys, values, pastKeys, pastValues }) => [
    { output: keys, input: pastKeys },
    { output: values, input: pastValues },
  ]);
}

/** Returns the cache outputs of all layers as a graph's outputs to fetch: new tensors. */
export function cacheFetches(config: Pick<ModelConfig, "layers">): Readonly<Record<string, null>> {
  return Object.fromEntries(cachePairs(config).map(({ output }) => [output, null]));
}

/** Batch dimensions of a sampler's graph. */
export interface SamplerDims extends BatchDims {
  /**
   * Dimension of the input `adapter`: the batch, or a name of its own if the input has one entry for each row or a single entry for all
   * rows. @default the batch
   */
  readonly owners?: Dim | undefined;
  /**
   * Whether rows are prompts or decoded, as a run switches. A product with an adapter then never has a single row, and rows of one adapter
   * may have one product, see {@link sharedAdapter} and {@link groupedAdapters}. @default false: one product for each row
   */
  readonly isSwitched?: boolean | undefined;
}

/** Graph inputs of a model's weights. */
export type WeightInputs = Pick<ModelInputs, "weights" | "tiedHead">;

/**
 * Builds a graph for `B` rows of `T` tokens each, `tokens` and `positions` `[B, T]`.
 *
 * `declareOutputs` receives the logits `[S, V]` of the tokens with the flat indices in `last`.
 *
 * @param adapters - Whether rows have low-rank adapters, each row its own, or all rows one.
 * @param declareWeights - Declares the weights.
 * @param attend - Creates the attention layer, which reads and writes the cache.
 * @param declareOutputs - Declares the outputs other than the cache. @default {@link distributionOutputs}
 * @param selectsTokens - Whether only the tokens in `last` have outputs, instead of all. @default true
 */
export function samplerGraph(
  config: ModelConfig,
  adapters: AdapterUse,
  dims: SamplerDims,
  declareWeights: (graph: Graph) => WeightInputs,
  attend: (inputs: ModelInputs) => AttentionLayer,
  declareOutputs: (logits: Value) => void = distributionOutputs,
  selectsTokens = true,
): Graph {
  const graph = new Graph();
  const tokens = graph.input("tokens", [dims.batch, dims.time], "int64");
  const weightInputs = declareWeights(graph);
  const positions = graph.input("positions", [dims.batch, dims.time], "int64");
  const shared = { graph, config, dims, ...weightInputs, positions, rotary: rotaryInputs(graph, config, "positions") };
  const delta = adapters === "none" ? undefined : adapterTerm(adapters, graph, config, dims);
  const project: Projection | undefined =
    delta &&
    ((linear, x) => {
      const weight = getOrThrow(shared.weights, linear.name);
      // The runtime merges the sum into a product, but not into one with a transposed matrix, which only switched graphs have.
      return dims.isSwitched ? matmul(x, weight, { plus: delta(linear, x) }) : add(matmul(x, weight), delta(linear, x));
    });
  const inputs: ModelInputs = { ...shared, project };
  const hidden = transformer(inputs, reshape(tokens, [dims.rows]), attend(shared));
  declareOutputs(logits(inputs, selectsTokens ? gatherRows(hidden, graph.input("last", ["selected"], "int64")) : hidden));
  return graph;
}

/** Declares the outputs `logits`, `logprobs` (`log softmax`) and `probs` (`softmax`), `[S, V]` each. */
export function distributionOutputs(raw: Value): void {
  const { graph } = raw;
  graph.directOutput("logits", raw);
  graph.directOutput("logprobs", logSoftmax(raw));
  graph.directOutput("probs", softmax(raw));
}

/** Returns the term `(x·A)·B` of each row's adapter. */
function adapterTerm(use: AdapterUse, graph: Graph, config: ModelConfig, dims: SamplerDims): Projection {
  if (use === "one") return sharedAdapter(graph, dims);
  return dims.isSwitched ? groupedAdapters(graph, config, dims) : stackedAdapters(graph, config, dims);
}

/** Returns the names of the graph inputs of {@link sharedAdapter}. */
export function sharedNames({ name }: LinearSpec): { readonly a: string; readonly b: string } {
  return { a: `${name}_a`, b: `${name}_b` };
}

/**
 * Returns the term of one adapter that all rows have. For a linear layer of `p` parts, the inputs are `A` `[p, in, rank]`, or `[in, rank]`
 * for one part, and a block diagonal `B` `[p · rank, out]`. The `A` of the parts are not concatenated, because the runtime splits the sum
 * over `in` by the width of the result.
 */
function sharedAdapter(graph: Graph, { rows }: SamplerDims): Projection {
  return (linear, x) => {
    const { parts, inputSize } = linear;
    const { a, b } = sharedNames(linear);
    if (parts.length === 1) {
      return matmul(matmul(x, graph.input(a, [inputSize, "rank"])), graph.input(b, ["rank", widthOf(linear)]));
    }
    const low = graph.recordOne({
      op: "MatMul",
      inputs: [reshape(x, [1, rows, inputSize]), graph.input(a, [parts.length, inputSize, "rank"])],
      output: { shape: [parts.length, rows, "rank"] },
    });
    const lows = reshape(transpose(low, [1, 0, 2]), [rows, "ranks"]);
    return matmul(lows, graph.input(b, ["ranks", widthOf(linear)]));
  };
}

/**
 * Returns the term `(x·A[o])·B[o]` with each row's own `A` and `B`, picked from stacks `[adapters, in, rank]` and `[adapters, rank, out]`
 * by `adapter` `[B]` or, if all rows have the same adapter, `[1]`. Picking costs a copy, but keeps a row's product bit-identical for any
 * set of loaded adapters: it is a product of this row alone. One wide product over adjacent adapters would round differently, and so would
 * one product of all rows.
 */
function stackedAdapters(graph: Graph, config: ModelConfig, { batch, time, rows, owners = batch }: SamplerDims): Projection {
  const owner = ownersByLayer(graph.input("adapter", [owners], "int64"), isLarge(config));
  return (linear, x) => {
    const index = owner(linear, x);
    const perRow = reshape(x, [batch, time, linear.inputSize]);
    return reshape(termOfRows(linear, perRow, index, { batch, tokens: [time] }), [rows, widthOf(linear)]);
  };
}

/**
 * Returns the term `(x·A[o])·B[o]` like {@link stackedAdapters}, with products of {@link GROUP_TOKENS} tokens of a prompt, or of two copies
 * of the one token of a running row: a product of a single row would have other bits than {@link sharedAdapter}. The inputs `padded_tokens`
 * `[T]` and `token_groups` `[groups, tokens of a group]` have an element for each token, copies included.
 */
function groupedAdapters(graph: Graph, config: ModelConfig, { batch, time, rows, owners = batch }: SamplerDims): Projection {
  const owner = ownersByLayer(graph.input("adapter", [owners], "int64"), isLarge(config));
  graph.input("padded_tokens", ["padded_time"]);
  const tokens = graph.input("token_groups", ["groups", "group_tokens"]).shape;
  const [zero, one] = [graph.ints([0]), graph.ints([1])];
  return (linear, x) => {
    const index = owner(linear, x);
    const copied = graph.recordOne({
      op: "Expand",
      inputs: [reshape(x, [batch, time, linear.inputSize]), graph.shapeVector([1, "padded_time", 1])],
      output: { shape: [batch, "padded_time", linear.inputSize] },
    });
    const perGroup = reshape(copied, [batch, ...tokens, linear.inputSize]);
    const all = reshape(termOfRows(linear, perGroup, index, { batch, tokens }), [batch, "padded_time", widthOf(linear)]);
    const withoutCopies = graph.recordOne({
      op: "Slice",
      inputs: [all, zero, graph.shapeVector([time]), one],
      output: { shape: [batch, time, widthOf(linear)] },
    });
    return reshape(withoutCopies, [rows, widthOf(linear)]);
  };
}

/** Returns the number of results of a linear layer. */
function widthOf({ parts }: LinearSpec): number {
  return parts.reduce((sum, { outputSize }) => sum + outputSize, 0);
}

/** Rows of products with picked adapters. */
interface RowDims {
  readonly batch: Dim;
  readonly tokens: readonly Dim[];
}

/** Computes the term of a linear layer for rows `[B, …tokens, in]` with picked adapters. */
function termOfRows(linear: LinearSpec, x: Value, index: Value, dims: RowDims): Value {
  const { graph } = x;
  const parts = linear.parts.map(({ outputSize }, part) => {
    const { a, b } = adapterNames(linear, part);
    const low = productOfRows(x, graph.input(a, ["adapters", linear.inputSize, "rank"]), index, dims);
    return productOfRows(low, graph.input(b, ["adapters", "rank", outputSize]), index, dims);
  });
  return join(parts, first(parts).shape.length - 1, widthOf(linear));
}

/**
 * Returns a function from a linear layer and its input to the indices of the rows' adapters. In a large model, the indices depend on the
 * input of the transformer layer. Otherwise the runtime would pick the adapters of all layers before the first product and keep them all:
 * 2.5 GB for 128 rows of a model of 135 M weights and rank 16.
 *
 * @param isOrdered - Whether the indices depend on the layer's input.
 */
function ownersByLayer(owner: Value, isOrdered: boolean): (linear: LinearSpec, x: Value) => Value {
  if (!isOrdered) return () => owner;
  const byLayer = new Map<string, Value>();
  return ({ name }, x) => {
    const layer = name.slice(0, name.indexOf("_"));
    const known = byLayer.get(layer) ?? after(owner, [x]);
    byLayer.set(layer, known);
    return known;
  };
}

/**
 * Tokens of a product with an adapter in a prompt of a large model. A longer product would be cut for two threads, and narrow results, as
 * wide as the rank, would then be summed differently.
 */
export const GROUP_TOKENS = 8;

/**
 * Computes `x[b]·w[index[b]]` for each row `b`, with matrices `w` `[adapters, K, N]` and an index `[B]`, or `[1]` for all rows.
 *
 * `x` is `[…, B, …tokens, K]`. The result has `N` in place of `K` and, unless the index is declared with the size of the batch, one more
 * leading dimension of size 1: each row, or each group of its tokens, is then a product of its own, because matrices with more dimensions
 * than `x` keep the runtime from joining the rows to one product. The index has these dimensions, so the picked matrices need no reshape.
 */
function productOfRows(x: Value, w: Value, index: Value, { batch, tokens }: RowDims): Value {
  const { graph } = x;
  const [, depth, width] = w.shape as [Dim, Dim, Dim];
  const [owners] = index.shape as [Dim];
  const hasMatrixPerRow = owners === batch;
  const leading = hasMatrixPerRow ? [] : x.shape.slice(0, -tokens.length - 1).map(() => 1);
  const dims = [...leading, owners, ...tokens.slice(1).map(() => 1)];
  const picked = graph.recordOne({
    op: "Gather",
    inputs: [w, hasMatrixPerRow ? index : reshape(index, dims)],
    attributes: { axis: { int: 0 } },
    output: { shape: [...dims, depth, width] },
  });
  if (hasMatrixPerRow) return matmul(x, picked);
  return graph.recordOne({ op: "MatMul", inputs: [x, picked], output: { shape: [1, ...x.shape.slice(0, -1), width] } });
}
