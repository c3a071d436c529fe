/** Attention in blocks of queries, with a gradient of its own: what is alive at once grows with the length, not its square. */
import type { Dim, Value } from "../graph.ts";
import { expandTo, reduceSum } from "./broadcast.ts";
import { add, maximum, mul, neg } from "./elementwise.ts";
import { concat, split } from "./join.ts";
import { matmul } from "./linear.ts";
import { softmax } from "./neural.ts";
import { reshape } from "./shape.ts";

/** Options of {@link attention}. */
export interface AttentionOptions {
  /** Query heads per key head, `g`. */
  readonly group: number;
  /** Factor of the scores. */
  readonly scale: number;
  /**
   * One mask per block of `t` queries, added to its scores: `[B or 1, 1, g·t, keys]`. Every block looks at `t` keys more than
   * the one before it, the last at all of them; each mask's last dimension has a name of its own.
   */
  readonly masks: readonly Value[];
  /** Queries of a block, `t`, and of a row, `T`. */
  readonly block: Dim;
  readonly time: Dim;
  /** Compute probabilities anew for the gradient, block by block, instead of keeping them. */
  readonly recompute: boolean;
}

/** What a block of queries looks at. */
interface Block {
  readonly queries: Value;
  readonly keys: Value;
  readonly mask: Value;
}

/**
 * Causal attention `O = softmax(scale·Q·Kᵀ + mask)·V`. Queries of one key head lie next to each other, `[B, kv, g·T, d]`;
 * keys and values are `[B, kv, K, d]`, the last `T` of them the queries' own; the result has the queries' shape.
 *
 * With `P` the probabilities, `G` the result's gradient and `D = Σ G·O` per query: `∂S = P · (G·Vᵀ − D)`,
 * `∂Q = scale·∂S·K`, `∂K = scale·∂Sᵀ·Q`, `∂V = Pᵀ·G`. `−D` is one more column of `G` against a column of ones beside `V`,
 * so the product brings the difference. Keys after a block's last query are never computed.
 *
 * @source Dao et al. 2022, arXiv:2205.14135, for `D` and the recomputation.
 */
export function attention(queries: Value, keys: Value, values: Value, options: AttentionOptions): Value {
  const { masks, scale, recompute } = options;
  const blocks = splitQueries(queries, options).map((block, i): Block => ({
    queries: block,
    keys: firstRows(keys, masks[i]!.shape[3]!),
    mask: masks[i]!,
  }));
  const kept: Value[] = [];
  const results = blocks.map((block, i) => {
    const p = probabilities(block, scale);
    kept.push(p);
    return matmul(p, firstRows(values, masks[i]!.shape[3]!));
  });
  const result = joinQueries(results, queries, options);
  return queries.graph.record({
    op: "Identity",
    inputs: [result],
    outputs: [{ shape: queries.shape }],
    variables: [queries, keys, values],
    vjp: ([g]) => gradients({ g: g!, result, values, blocks, kept: recompute ? null : kept, queries }, options),
  })[0]!;
}

function probabilities({ queries, keys, mask }: Block, scale: number): Value {
  return softmax(add(matmul(queries, keys, { transposeB: true, scale }), mask));
}

interface Backward {
  readonly g: Value;
  readonly result: Value;
  readonly queries: Value;
  readonly values: Value;
  readonly blocks: readonly Block[];
  readonly kept: readonly Value[] | null;
}

function gradients({ g, result, queries, values, blocks, kept }: Backward, options: AttentionOptions): Value[] {
  const { masks, scale } = options;
  const d = g.shape[3] as number;
  const delta = neg(reduceSum(mul(g, result), [3]));
  const ones = expandTo(g.graph.scalar(1), [...values.shape.slice(0, 3), 1]);
  const widened = splitQueries(concat([g, delta], 3, d + 1), options);
  const widenedValues = concat([values, ones], 3, d + 1);
  const incoming = splitQueries(g, options);
  const perQuery: Value[] = [];
  const keySum = new PrefixSum(options.block);
  const valueSum = new PrefixSum(options.block);
  for (let i = blocks.length - 1; i >= 0; i--) {
    const block = blocks[i]!;
    // What is computed anew waits for what the block before it leaves, so that one block's scores are alive at a time.
    const before = i === blocks.length - 1 ? [g] : [perQuery[0]!, keySum.head!, valueSum.head!];
    const late = kept ? block : { ...block, queries: after(block.queries, before) };
    const p = kept ? kept[i]! : probabilities(late, scale);
    const scores = mul(p, matmul(widened[i]!, firstRows(widenedValues, masks[i]!.shape[3]!), { transposeB: true }));
    perQuery.unshift(matmul(scores, block.keys, { scale }));
    keySum.add(matmul(scores, late.queries, { transposeA: true, scale }));
    valueSum.add(matmul(p, incoming[i]!, { transposeA: true }));
  }
  return [joinQueries(perQuery, queries, options), keySum.total(values.shape[2]!), valueSum.total(values.shape[2]!)];
}

/** Adds what blocks contribute to the keys they look at, last block first. */
class PrefixSum {
  /** What the keys of the last block added so far have received. */
  head: Value | null = null;
  readonly #block: Dim;
  readonly #tails: Value[] = [];

  /** @param block - How many keys more each block looks at than the one before it. */
  constructor(block: Dim) {
    this.#block = block;
  }

  add(contribution: Value): void {
    if (this.head) {
      const [head, tail] = split(this.head, 2, [contribution.shape[2]!, this.#block]);
      this.#tails.unshift(tail!);
      this.head = add(head!, contribution);
    } else this.head = contribution;
  }

  total(size: Dim): Value {
    return this.#tails.length === 0 ? this.head! : concat([this.head!, ...this.#tails], 2, size);
  }
}

/** Cuts `[B, kv, g·T, w]` into blocks `[B, kv, g·t, w]` of consecutive queries. */
function splitQueries(x: Value, { masks, group, block, time }: AttentionOptions): Value[] {
  if (masks.length === 1) return [x];
  const [batch, heads, , width] = x.shape as [Dim, Dim, Dim, Dim];
  const rows = masks[0]!.shape[2]!;
  const pieces = split(
    reshape(x, [batch, heads, group, time, width]),
    3,
    masks.map(() => block),
  );
  return pieces.map((piece) => reshape(piece, [batch, heads, rows, width]));
}

/** The inverse of {@link splitQueries}; the result has the shape of `like`. */
function joinQueries(pieces: readonly Value[], like: Value, { group, block, time }: AttentionOptions): Value {
  if (pieces.length === 1) return pieces[0]!;
  const [batch, heads, , width] = like.shape as [Dim, Dim, Dim, Dim];
  const apart = pieces.map((piece) => reshape(piece, [batch, heads, group, block, width]));
  return reshape(concat(apart, 3, time), like.shape);
}

/** The first `size` of dimension 2. */
function firstRows(x: Value, size: Dim): Value {
  if (x.shape[2] === size) return x;
  const { graph } = x;
  return graph.record({
    op: "Slice",
    inputs: [x, graph.ints([0]), graph.shapeVector([size]), graph.ints([2])],
    outputs: [{ shape: x.shape.map((dim, i) => (i === 2 ? size : dim)) }],
  })[0]!;
}

/** `x`, not before `others` are computed: its shape, which costs nothing to set, is read from theirs. */
function after(x: Value, others: readonly Value[]): Value {
  const { graph } = x;
  const batches = others.map(
    (other) =>
      graph.record({
        op: "Shape",
        inputs: [other],
        attributes: { start: { int: 0 }, end: { int: 1 } },
        outputs: [{ shape: [1], dtype: "int64" }],
      })[0]!,
  );
  const rest = graph.shapeVector(x.shape.slice(1));
  const shape = concat([batches.reduce((a, b) => maximum(a, b)), rest], 0, x.shape.length);
  return graph.record({ op: "Reshape", inputs: [x, shape], outputs: [{ shape: x.shape }] })[0]!;
}
