/** Transformer ops that use a fused operator, or a cheaper gradient than the composition of elementary ops. */
import { ShapeError } from "../../../../base/errors.ts";
import type { Dim, Value } from "../graph.ts";
import { expandTo, reduceSum } from "./broadcast.ts";
import { add, cast, exp, lessOrEqual, maximum, minimum, mul, neg, sub, where } from "./elementwise.ts";
import { matmul } from "./linear.ts";
import { reshape } from "./shape.ts";
import { first, last } from "../../../../base/util/values.ts";

/** Computes the softmax over the last axis; `∂x = p · (g − Σ g·p)`. */
export function softmax(x: Value): Value {
  return alongLastAxis("Softmax", x, (g, p) => mul(p, sub(g, reduceSum(mul(g, p), [x.shape.length - 1]))));
}

/** Computes the log-softmax over the last axis; `∂x = g − softmax(x) · Σ g`. */
export function logSoftmax(x: Value): Value {
  return alongLastAxis("LogSoftmax", x, (g, y) => sub(g, mul(exp(y), reduceSum(g, [x.shape.length - 1]))));
}

/** Records an op on the last axis. @param vjp - Gradient of `x` from the gradient of the result and the result. */
function alongLastAxis(op: string, x: Value, vjp?: (gradient: Value, output: Value) => Value): Value {
  const y = x.graph.recordOne({
    op,
    inputs: [x],
    attributes: { axis: { int: -1 } },
    output: { shape: x.shape },
    vjp: vjp && ((g) => [vjp(g, y)]),
  });
  return y;
}

/**
 * Computes RMS normalization over the last axis: `y = x · r · gain` with `r = 1/√(mean(x²) + epsilon)`.
 *
 * With `w = g·x` and `H` the width: `∂x = g·gain·r − x·(r³/H · Σ w·gain)`, `∂gain = Σ w·r`. Both sums are matrix-vector products.
 *
 * @param x - `[R, H]`.
 * @param gain - `[H]`.
 * @source Zhang and Sennrich 2019, arXiv:1910.07467.
 */
export function rmsNorm(x: Value, gain: Value, epsilon: number): Value {
  const rowShape: Dim[] = [...x.shape.slice(0, -1), 1];
  const [y, r] = x.graph.record({
    op: "SimplifiedLayerNormalization",
    inputs: [x, gain],
    attributes: { axis: { int: -1 }, epsilon: { float: epsilon }, stash_type: { int: 1 } },
    outputs: [{ shape: x.shape }, { shape: rowShape }],
    vjp: (gradients, needed) => {
      const [g] = gradients as [Value, null]; // only `y` is returned
      const w = mul(g, x);
      const gradient = () => {
        const width = gain.shape[0] as number;
        const sums = reshape(matmul(asMatrix(w), reshape(gain, [width, 1]), { scale: 1 / width }), rowShape);
        return sub(mul(mul(g, gain), r), mul(x, mul(mul(r, r), mul(r, sums))));
      };
      return [
        needed[0] ? gradient() : null,
        needed[1] ? reshape(matmul(asMatrix(w), asMatrix(r), { transposeA: true }), gain.shape) : null,
      ];
    },
  }) as [Value, Value];
  return y;
}

/** Reshapes to a matrix by merging all dimensions except the last. The name of the merged dimension is unique to its size. */
function asMatrix(x: Value): Value {
  return x.shape.length === 2 ? x : reshape(x, [x.shape.slice(0, -1).join("*"), last(x.shape)]);
}

/**
 * Applies rotary position embeddings to pairs `(x[i], x[i + d/2])`: `y = x·cos + rotateHalf(x)·sin`. The gradient is the rotation by
 * the negative angle, because the map is orthogonal.
 *
 * @param x - `[B, heads, T, d]`.
 * @param positions - `[B, T]`, int64, row indices of the tables.
 * @param cos - `[positions, d/2]`; `sin` likewise.
 * @source Su et al. 2021, arXiv:2104.09864, in the half-split layout of Llama checkpoints.
 */
export function rotaryEmbedding(x: Value, positions: Value, cos: Value, sin: Value): Value {
  return x.graph.recordOne({
    op: "RotaryEmbedding",
    domain: "com.microsoft",
    inputs: [x, positions, cos, sin],
    attributes: { interleaved: { int: 0 } },
    output: { shape: x.shape },
    vjp: (g) => [rotaryEmbedding(g, positions, cos, neg(sin)), null, null, null],
  });
}

/**
 * Gathers rows of a table: `y[r] = table[indices[r]]`. The gradient scatter-adds rows.
 *
 * @param table - `[V, H]`.
 * @param indices - `[R]`, int64 or int32.
 */
export function gatherRows(table: Value, indices: Value): Value {
  const [rows, width] = [indices.shape[0], table.shape[1]];
  if (indices.shape.length !== 1 || rows === undefined || table.shape.length !== 2 || width === undefined) {
    throw new ShapeError(`Expected a table [V, H] and indices [R], got [${table.shape.join(", ")}] and [${indices.shape.join(", ")}]`);
  }
  return table.graph.recordOne({
    op: "Gather",
    inputs: [table, indices],
    attributes: { axis: { int: 0 } },
    output: { shape: [rows, width], dtype: table.dtype },
    vjp: (g) => [(sum) => scatterAddRows(sum ?? expandTo(table.graph.scalar(0), table.shape), indices, g), null],
  });
}

/**
 * Gathers rows of a table that is stored in pieces of consecutive rows, as {@link gatherRows} does of a whole table. Gathers each index
 * from each piece, clamped to the piece's rows, and selects the row from the piece that holds it.
 *
 * @param pieces - At least one, each `[rows, H]` with a fixed number of rows.
 * @param indices - `[R]`, int64 or int32, below 2^24.
 */
export function gatherFromPieces(pieces: readonly Value[], indices: Value): Value {
  if (pieces.length === 1) return gatherRows(first(pieces), indices);
  const { graph, shape } = indices;
  const ids = cast(indices, "float32");
  let end = pieces.reduce((sum, piece) => sum + (piece.shape[0] as number), 0);
  let result: Value | null = null;
  // From the last piece to the first: a piece replaces the rows of indices before its end.
  for (const piece of pieces.toReversed()) {
    const size = piece.shape[0] as number;
    const start = end - size;
    const inside = minimum(maximum(sub(ids, graph.scalar(start)), graph.scalar(0)), graph.scalar(size - 1));
    const rows = gatherRows(piece, cast(inside, "int32"));
    result = result ? where(reshape(lessOrEqual(ids, graph.scalar(end - 1)), [first(shape), 1]), rows, result) : rows;
    end = start;
  }
  return result!;
}

/**
 * Returns `table` after `table[indices[r]] += updates[r]`. Has no gradient. The ONNX operators that compute it without loss or a varying
 * order of summation differ by device: see the lowering tables.
 */
function scatterAddRows(table: Value, indices: Value, updates: Value): Value {
  return table.graph.recordOne({
    op: "ScatterAddRows",
    domain: "whetstone",
    inputs: [table, indices, updates],
    output: { shape: table.shape },
  });
}

/**
 * Computes the log-probability of one class per row, `logprob[r] = log softmax(logits[r])[targets[r]]`, and the entropy of each row's
 * distribution, `H[r] = −Σ p·log p`.
 *
 * `∂logits = g · (onehot(target) − softmax)` for the log-probability, and `−g · softmax · (log softmax + H)` for the entropy. Both are
 * recorded only if the differentiated value depends on them.
 *
 * @param logits - `[R, V]`.
 * @param targets - `[R]`, int64.
 * @returns `logprob` and `entropy`, each `[R, 1]`.
 */
export function targetLogprob(logits: Value, targets: Value): { logprob: Value; entropy: Value } {
  const { graph } = logits;
  const [rows] = logits.shape;
  if (rows === undefined || logits.shape.length !== 2) throw new ShapeError(`Expected logits [R, V], got [${logits.shape.join(", ")}]`);
  const all = alongLastAxis("LogSoftmax", logits);
  const probabilities = exp(all);
  const column = reshape(targets, [rows, 1]);
  const logprob = graph.recordOne({
    op: "GatherElements",
    inputs: [all, column],
    attributes: { axis: { int: 1 } },
    output: { shape: [rows, 1] },
    variables: [logits],
    vjp: (g) => [
      (sum) => {
        const spread = mul(probabilities, neg(g));
        return graph.recordOne({
          op: "ScatterElements",
          inputs: [sum ? add(sum, spread) : spread, column, g],
          attributes: { axis: { int: 1 }, reduction: { string: "add" } },
          output: { shape: logits.shape },
        });
      },
    ],
  });
  const negativeEntropy = reduceSum(mul(probabilities, all), [1]);
  const entropy = graph.recordOne({
    op: "Neg",
    inputs: [negativeEntropy],
    output: { shape: negativeEntropy.shape },
    variables: [logits],
    vjp: (g) => [mul(mul(probabilities, sub(all, negativeEntropy)), neg(g))],
  });
  return { logprob, entropy };
}
