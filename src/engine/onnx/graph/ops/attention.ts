/** Attention in blocks of queries, with a custom gradient. Memory grows linearly with the sequence length, not quadratically. */
import type { Dim, Value } from "../graph.ts";
import { expandTo, reduceSum } from "./broadcast.ts";
import { add, mul, neg } from "./elementwise.ts";
import { concat, join, split } from "./join.ts";
import { matmul } from "./linear.ts";
import { softmax } from "./neural.ts";
import { after } from "./order.ts";
import { reshape } from "./shape.ts";
import { first, itemAt, zip } from "../../../../base/util/values.ts";

/** Term that attention masks add to a masked score, which makes its exponential exactly 0. */
export const MASKED = -1e9;

/** Options of {@link attention}. */
export interface AttentionOptions {
  /** Number of query heads per key head, `g`. */
  readonly group: number;
  /** Scale factor of the attention scores. */
  readonly scale: number;
  /**
   * Masks, one per block of `t` queries, added to the block's scores: `[B or 1, 1, g·t, keys]`. Each block attends to `t` keys more than
   * the previous block, and the last block to all keys. The last dimension of each mask has a different name.
   */
  readonly masks: readonly Value[];
  /** Number of queries per block, `t`. */
  readonly block: Dim;
  /** Number of queries per row, `T`. */
  readonly time: Dim;
  /** Whether the backward pass recomputes probabilities block by block instead of keeping them. */
  readonly recompute: boolean;
}

/** Block of queries with its keys and mask. */
interface Block {
  readonly queries: Value;
  readonly keys: Value;
  readonly mask: Value;
}

/**
 * Computes causal attention `O = softmax(scale·Q·Kᵀ + mask)·V`.
 *
 * With `P` the probabilities, `G` the gradient of the result and `D = Σ G·O` per query: `∂S = P · (G·Vᵀ − D)`, `∂Q = scale·∂S·K`,
 * `∂K = scale·∂Sᵀ·Q`, `∂V = Pᵀ·G`. `−D` is appended to `G` as a column, and a column of ones to `V`, so that one product computes the
 * difference. Scores of keys after a block's last query are not computed.
 *
 * @param queries - `[B, kv, g·T, d]`: the queries of all heads that share a key head are concatenated.
 * @param keys - `[B, kv, K, d]`; the last `T` keys belong to the queries' positions.
 * @param values - `[B, kv, K, d]`.
 * @returns Value of the queries' shape.
 *
 * @source Dao et al. 2022, arXiv:2205.14135, for `D` and the recomputation.
 */
export function attention(queries: Value, keys: Value, values: Value, options: AttentionOptions): Value {
  const { masks, scale, recompute } = options;
  const blocks = zip(splitQueries(queries, options), masks).map(([block, mask]): Block => ({
    queries: block,
    keys: visible(keys, mask),
    mask,
  }));
  const allProbabilities: Value[] = [];
  const results = blocks.map((block) => {
    const p = probabilities(block, scale);
    allProbabilities.push(p);
    return matmul(p, visible(values, block.mask));
  });
  const result = joinQueries(results, queries, options);
  return queries.graph.recordOne({
    op: "Identity",
    inputs: [result],
    output: { shape: queries.shape },
    variables: [queries, keys, values],
    vjp: (gradient) => gradients({ gradient, result, values, blocks, kept: recompute ? null : allProbabilities, queries }, options),
  });
}

/** Computes the attention probabilities of a block, `[B, kv, g·t, keys]`. */
function probabilities({ queries, keys, mask }: Block, scale: number): Value {
  return softmax(add(matmul(queries, keys, { transposeB: true, scale }), mask));
}

/** Values that the backward pass reads. */
interface Backward {
  /** Gradient of the result. */
  readonly gradient: Value;
  readonly result: Value;
  readonly queries: Value;
  readonly values: Value;
  readonly blocks: readonly Block[];
  /** Probabilities of each block; null if they are recomputed. */
  readonly kept: readonly Value[] | null;
}

/** Returns the gradients of queries, keys and values. */
function gradients({ gradient, result, queries, values, blocks, kept }: Backward, options: AttentionOptions): Value[] {
  const { scale } = options;
  const d = gradient.shape[3] as number;
  const minusD = neg(reduceSum(mul(gradient, result), [3]));
  const ones = expandTo(gradient.graph.scalar(1), [...values.shape.slice(0, 3), 1]);
  const widened = splitQueries(concat([gradient, minusD], 3, d + 1), options);
  const widenedValues = concat([values, ones], 3, d + 1);
  const incoming = splitQueries(gradient, options);
  const perQuery: Value[] = [];
  const keySum = new PrefixSum(options.block);
  const valueSum = new PrefixSum(options.block);
  // Recomputation of a block waits for the results of the block computed previously, so that only one block's scores are in memory at a
  // time.
  let previous = [gradient];
  for (let i = blocks.length - 1; i >= 0; i--) {
    const block = itemAt(blocks, i);
    const delayed = kept ? block : { ...block, queries: after(block.queries, previous) };
    const p = kept ? itemAt(kept, i) : probabilities(delayed, scale);
    const scores = mul(p, matmul(itemAt(widened, i), visible(widenedValues, block.mask), { transposeB: true }));
    const ofQueries = matmul(scores, block.keys, { scale });
    perQuery.unshift(ofQueries);
    const ofKeys = keySum.add(matmul(scores, delayed.queries, { transposeA: true, scale }));
    previous = [ofQueries, ofKeys, valueSum.add(matmul(p, itemAt(incoming, i), { transposeA: true }))];
  }
  const size = itemAt(values.shape, 2);
  return [joinQueries(perQuery, queries, options), keySum.total(size), valueSum.total(size)];
}

/** Sum of contributions to growing prefixes of the keys, added from the longest prefix (last block) to the shortest. */
class PrefixSum {
  readonly #block: Dim;
  /** Sum for the keys of the block that was added last, then the sums for the keys after them, in order. */
  #parts: Value[] = [];

  /** @param block - Number of keys by which each block's prefix exceeds the previous block's. */
  constructor(block: Dim) {
    this.#block = block;
  }

  /** Returns the sum for the keys of this block. */
  add(contribution: Value): Value {
    const [sum, ...tails] = this.#parts;
    if (!sum) this.#parts = [contribution];
    else {
      const [head, tail] = split(sum, 2, [itemAt(contribution.shape, 2), this.#block]);
      this.#parts = [add(head, contribution), tail, ...tails];
    }
    return first(this.#parts);
  }

  /** Returns the sum for all `size` keys. */
  total(size: Dim): Value {
    return join(this.#parts, 2, size);
  }
}

/** Splits `[B, kv, g·T, w]` into blocks `[B, kv, g·t, w]` of consecutive queries. */
function splitQueries(x: Value, { masks, group, block, time }: AttentionOptions): Value[] {
  if (masks.length === 1) return [x];
  const [batch, heads, , width] = x.shape as [Dim, Dim, Dim, Dim];
  const rows = itemAt(first(masks).shape, 2);
  const sizes = masks.map(() => block);
  return split(reshape(x, [batch, heads, group, time, width]), 3, sizes).map((piece) => reshape(piece, [batch, heads, rows, width]));
}

/** Inverts {@link splitQueries}; the result has the shape of `like`. */
function joinQueries(pieces: readonly Value[], like: Value, { group, block, time }: AttentionOptions): Value {
  if (pieces.length === 1) return first(pieces);
  const [batch, heads, , width] = like.shape as [Dim, Dim, Dim, Dim];
  const apart = pieces.map((piece) => reshape(piece, [batch, heads, group, block, width]));
  return reshape(concat(apart, 3, time), like.shape);
}

/** Returns the first elements along dimension 2, as many as the keys of a mask. */
function visible(x: Value, mask: Value): Value {
  const size = itemAt(mask.shape, 3);
  if (x.shape[2] === size) return x;
  const { graph } = x;
  return graph.recordOne({
    op: "Slice",
    inputs: [x, graph.ints([0]), graph.shapeVector([size]), graph.ints([2])],
    output: { shape: x.shape.map((dim, i) => (i === 2 ? size : dim)) },
  });
}
