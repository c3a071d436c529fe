/** Lowerings for the WebGPU execution provider of ONNX Runtime 1.30: operators without a kernel, or with a kernel that is not exact. */
import type { Attribute, Dim, DType, Node, NodeSpec, Value } from "../graph.ts";
import { firstInputs, type LoweringTable } from "../lower.ts";
import { expandTo, reduceSum } from "../ops/broadcast.ts";
import { add, cast, div, equal, exp, log, mul, sqrt, sub } from "../ops/elementwise.ts";
import { split } from "../ops/join.ts";
import { matmul } from "../ops/linear.ts";
import { reduceMax } from "../ops/reduce.ts";
import { reshape, transpose } from "../ops/shape.ts";
import { itemAt, zip } from "../../../../base/util/values.ts";

/** Returns the value of an integer attribute; 0 if the node does not have it. */
const int = (attribute: Attribute | undefined) => (attribute !== undefined && "int" in attribute ? Number(attribute.int) : 0);
/** Returns the value of a float attribute; `otherwise` if the node does not have it. */
const float = (attribute: Attribute | undefined, otherwise: number) =>
  attribute !== undefined && "float" in attribute ? attribute.float : otherwise;

/** Max elements of a product that is summed in pieces: a larger product has enough tiles to fill a GPU. */
const MAX_SPLIT_RESULT = 2 ** 18;
/** Max pieces of a long sum; a power of two. */
const MAX_PIECES = 16;
/**
 * Min ratio of the height of a transposed matrix to its width, or of the width of one matrix to the other's, from which transposing the
 * other matrix and the result is cheaper than transposing the matrix.
 */
const TALL = 8;
/** Min elements of a matrix for which a ratio of 1 suffices in place of {@link TALL}, if the other matrix and the result have few rows. */
const LARGE = 2 ** 24;

/** Min length of a sum that {@link productInParts} cuts: in a shorter sum, the two additional kernels take longer than the parts save. */
const LONG = 2 ** 14;
/** Max parts of such a sum; a power of two. */
const MAX_PARTS = 32;

/** Min length of rows that {@link reduceRows} reduces in two stages: one workgroup reduces a row. */
const LONG_ROW = 2 ** 14;
/** Max parts of such a row; a power of two. */
const MAX_ROW_PARTS = 128;

/** Max outputs of a kernel: every adapter has at least eight storage buffers per shader stage, and one is the input. */
const MAX_OUTPUTS = 7;

/** Lowerings of the device `webgpu`. */
export const WEBGPU_LOWERINGS: LoweringTable = {
  MatMul: (node, inputs) => {
    const [a, b] = firstInputs(node, inputs, 2);
    const sum = productInParts(a, b);
    return sum && [sum];
  },

  ReduceSum: (node, inputs) => longRows(node, inputs),
  ReduceMax: (node, inputs) => longRows(node, inputs),

  // The kernel reads transposed matrices element by element: on an H100, 6 TFLOP/s instead of 20.
  Gemm: (node, inputs) => {
    const { attributes } = node;
    const [a, b] = firstInputs(node, inputs, 2);
    const [, , plus] = inputs;
    const [isTransposedA, isTransposedB] = [int(attributes["transA"]) === 1, int(attributes["transB"]) === 1];
    const scale = float(attributes["alpha"], 1);
    const [k] = (isTransposedA ? a.shape : a.shape.slice(1)) as [Dim];
    const [m, n] = [itemAt(a.shape, isTransposedA ? 1 : 0), itemAt(b.shape, isTransposedB ? 0 : 1)];
    // One column: a tile of the product would compute one of its 32 columns.
    if (n === 1 && !isTransposedA && typeof k === "number") return [scaledSum(reduceSum(mul(a, reshape(b, [k])), [1]), scale, plus)];
    if (!isTransposedA && !isTransposedB) {
      const sum = productInParts(a, b);
      return sum && [scaledSum(sum, scale, plus)];
    }
    const minHeight = Number(n) * Number(k) < LARGE ? TALL * Number(k) : Number(k);
    // Few rows times a tall transposed matrix: transposes the rows and the result instead of the matrix.
    const isTall = !isTransposedA && isTransposedB && hasFewRows(a) && Number(n) >= minHeight;
    // A small result of a sum over all rows of a batch, as for the gradient of a weight: sums it in pieces, at the same time.
    const isLong = isTransposedA && !isTransposedB && typeof k === "string" && Number(m) * Number(n) <= MAX_SPLIT_RESULT;
    if (isTall) return [scaledSum(swapLastTwo(matmul(b, swapLastTwo(a))), scale, plus)];
    if (isLong) return [scaledSum(sumOfPieces(a, b), scale, plus)];
    const [left, right] = [isTransposedA ? swapLastTwo(a) : a, isTransposedB ? swapLastTwo(b) : b];
    const sum = productInParts(left, right);
    return [sum ? scaledSum(sum, scale, plus) : matmul(left, right, { scale, plus })];
  },

  // No kernel.
  "com.microsoft.FusedMatMul": (node, inputs) => {
    const { attributes } = node;
    const [a, b] = firstInputs(node, inputs, 2);
    const [isTransposedA, isTransposedB] = [int(attributes["transA"]) === 1, int(attributes["transB"]) === 1];
    const scale = float(attributes["alpha"], 1);
    // Scores and vectors of queries: a query has fewer elements than scores, so its vector is transposed, not its scores.
    const isNarrow = isTransposedA && !isTransposedB && hasStaticWidth(b) && !hasStaticWidth(a);
    if (isNarrow) return [scaledSum(swapLastTwo(matmul(swapLastTwo(b), a)), scale)];
    const [left, right] = [isTransposedA ? swapLastTwo(a) : a, isTransposedB ? swapLastTwo(b) : b];
    // Scales the operand if it has fewer elements than the result.
    const isShort = hasStaticWidth(left) && !hasStaticWidth(right);
    const product = (x: Value) => {
      const [padded, paddedRight] = withAlignedSum(x, right);
      return matmul(padded, paddedRight);
    };
    return [isShort ? product(scaledSum(left, scale)) : scaledSum(product(left), scale)];
  },

  // The kernel leaves the second output, the inverse standard deviation, unwritten.
  SimplifiedLayerNormalization: (node, inputs, isUsed) => {
    if (!isUsed(1)) return null;
    const { op, attributes } = node;
    const [x, gain] = firstInputs(node, inputs, 2);
    const { graph, shape } = x;
    const axis = shape.length - 1;
    const squares = graph.recordOne({
      op: "ReduceSumSquare",
      inputs: [x, graph.ints([axis])],
      attributes: { keepdims: { int: 1 } },
      output: { shape: [...shape.slice(0, axis), 1] },
    });
    const mean = mul(squares, graph.scalar(1 / (shape[axis] as number)));
    const inverse = div(graph.scalar(1), sqrt(add(mean, graph.scalar(float(attributes["epsilon"], 1e-5)))));
    const normed = graph.recordOne({ op, inputs: [x, gain], attributes, output: { shape } });
    return [normed, inverse];
  },

  // The kernel writes all outputs at once, and fails if the adapter has fewer storage buffers.
  Split: (node, inputs) => {
    const { attributes, outputs } = node;
    const [x] = firstInputs(node, inputs, 1);
    const axis = int(attributes["axis"]);
    const sizes = outputs.map(({ shape }) => itemAt(shape, axis));
    if (sizes.length <= MAX_OUTPUTS) return null;
    const isStatic = (size: Dim): size is number => typeof size === "number";
    if (sizes.every(isStatic)) return splitInStages(x, axis, sizes);
    const [size] = sizes;
    return typeof size === "string" && sizes.every((each) => each === size) ? slicesOf(x, axis, size, sizes.length) : null;
  },

  // No kernel.
  LogSoftmax: (node, inputs) => {
    const [x] = firstInputs(node, inputs, 1);
    const axis = x.shape.length - 1;
    const centered = sub(x, reduceRows("ReduceMax", x) ?? reduceMax(x, [axis]));
    const exponentials = exp(centered);
    return [sub(centered, log(reduceRows("ReduceSum", exponentials) ?? reduceSum(exponentials, [axis])))];
  },

  // ScatterElements with addition sums rows of equal index in no fixed order. Here each row becomes the old row plus the sum of all updates
  // with its index, by one product, so rows of equal index are equal, and the order in which they are written does not matter.
  "whetstone.ScatterAddRows": (node, inputs) => {
    const [table, indices, updates] = firstInputs(node, inputs, 3);
    const { graph } = table;
    const [rows] = updates.shape as [Dim, Dim];
    const record = (op: string, inputs: readonly Value[], shape: readonly Dim[], dtype: DType, attributes: NodeSpec["attributes"] = {}) =>
      graph.recordOne({ op, inputs, attributes, output: { shape, dtype } });
    const ids = cast(indices, "float32");
    const sums = matmul(cast(equal(reshape(ids, [rows, 1]), ids), "float32"), updates);
    const changed = add(record("Gather", [table, indices], updates.shape, "float32", { axis: { int: 0 } }), sums);
    const wide = expandTo(reshape(indices, [rows, 1]), updates.shape);
    return [record("ScatterElements", [table, wide, changed], table.shape, "float32", { axis: { int: 0 } })];
  },
};

/**
 * Computes `a·b` for few rows and a long static sum in parts of the sum, at the same time: one tile of a product goes through the sum step
 * by step, and a narrow result of few rows has few tiles. Returns null for other products.
 */
function productInParts(a: Value, b: Value): Value | null {
  const [k, n] = b.shape;
  if (a.shape.length !== 2 || b.shape.length !== 2 || typeof k !== "number" || typeof n !== "number") return null;
  // Kernels read four elements at a time.
  const parts = Math.min(MAX_PARTS, powerOfTwoIn(k) / 4);
  if (!hasFewRows(a) || k < LONG || n > k / 2 || parts < 2) return null;
  const [m] = a.shape as [Dim];
  const length = k / parts;
  const left = transpose(reshapeRows(a, m, [parts, length]), [1, 0, 2]);
  return reshapeRows(reduceSum(matmul(left, reshape(b, [parts, length, n])), [0]), m, [n]);
}

/** Returns the largest power of two that divides `size`. */
function powerOfTwoIn(size: number): number {
  return size & -size;
}

/**
 * Returns both operands of a product `a·b` with zeros appended along a static sum, up to a multiple of 4: kernels read four elements at a
 * time, or else one.
 */
function withAlignedSum(a: Value, b: Value): [Value, Value] {
  const [rank, k] = [a.shape.length, a.shape.at(-1)!];
  if (typeof k !== "number" || k < 4 || k % 4 === 0) return [a, b];
  const padding = 4 - (k % 4);
  const padded = (x: Value, axis: number) =>
    x.graph.recordOne({
      op: "Pad",
      inputs: [x, x.graph.ints(Array.from({ length: 2 * rank }, (_, i) => (i === rank + axis ? padding : 0)))],
      output: { shape: x.shape.map((dim, i) => (i === axis ? k + padding : dim)) },
    });
  return [padded(a, rank - 1), padded(b, rank - 2)];
}

/** Lowers a reduction along the last axis of a matrix, see {@link reduceRows}. */
function longRows({ op, inputs: [, axes], attributes }: Node, inputs: readonly Value[]): readonly Value[] | null {
  const [x] = inputs;
  const isLastAxis = axes !== undefined && String(axes.graph.constants.get(axes)) === "1";
  const result = x !== undefined && isLastAxis && int(attributes["keepdims"]) === 1 ? reduceRows(op as RowReduction, x) : null;
  return result && [result];
}

type RowReduction = "ReduceSum" | "ReduceMax";

/** Reduces long rows of a matrix `[R, W]` to `[R, 1]`, in parts and then over the parts. Returns null for other values. */
function reduceRows(op: RowReduction, x: Value): Value | null {
  const [rows, width] = x.shape;
  if (x.shape.length !== 2 || rows === undefined || typeof width !== "number" || width < LONG_ROW) return null;
  const parts = Math.min(MAX_ROW_PARTS, powerOfTwoIn(width));
  if (parts === 1) return null;
  const reduce = op === "ReduceSum" ? reduceSum : reduceMax;
  const inParts = reshapeRows(x, rows, [parts, width / parts]);
  return reduce(reshapeRows(reduce(inParts, [2]), rows, [parts]), [1]);
}

/** Splits `x` into at most {@link MAX_OUTPUTS} parts, and each part in the same way, until the pieces have the given sizes. */
function splitInStages(x: Value, axis: number, sizes: readonly number[]): Value[] {
  if (sizes.length === 1) return [x];
  let perPart = 1;
  while (perPart * MAX_OUTPUTS < sizes.length) perPart *= MAX_OUTPUTS;
  const parts = Array.from({ length: Math.ceil(sizes.length / perPart) }, (_, i) => sizes.slice(i * perPart, (i + 1) * perPart));
  const totals = parts.map((part) => part.reduce((a, b) => a + b, 0));
  return zip(parts, split(x, axis, totals)).flatMap(([part, piece]) => splitInStages(piece, axis, part));
}

/** Cuts `x` into slices of equal size along an axis. @param size - Name of the size. */
function slicesOf(x: Value, axis: number, size: string, count: number): Value[] {
  const { graph } = x;
  const bounds = Array.from({ length: count + 1 }, (_, i) =>
    graph.recordOne({ op: "Mul", inputs: [graph.dim(size), graph.ints([i])], output: { shape: [1], dtype: "int64" } }),
  );
  return bounds.slice(1).map((end, i) =>
    graph.recordOne({
      op: "Slice",
      inputs: [x, itemAt(bounds, i), end, graph.ints([axis])],
      output: { shape: x.shape.map((dim, at) => (at === axis ? size : dim)), dtype: x.dtype },
    }),
  );
}

/**
 * Computes `aᵀ·b` for `a` `[K, M]` and `b` `[K, N]` in pieces of `K`, at the same time: as many as divide `K`, a power of two up to
 * {@link MAX_PIECES}. Training pads its rows to a multiple of 8.
 */
function sumOfPieces(a: Value, b: Value): Value {
  const { graph } = a;
  const integers = (op: string, inputs: readonly Value[], size: number, attributes: NodeSpec["attributes"] = {}) =>
    graph.recordOne({ op, inputs, attributes, output: { shape: [size], dtype: "int64" } });
  const [length] = a.shape as [string];
  // The size is read from this value, not by the dimension's name: values of different lengths may share a name.
  const rows = integers("Shape", [a], 1, { start: { int: 0 }, end: { int: 1 } });
  const divisor = integers("BitwiseAnd", [rows, integers("Neg", [rows], 1)], 1);
  const pieces = integers("Min", [divisor, graph.ints([MAX_PIECES])], 1);
  const inPieces = (x: Value) => {
    const width = x.shape[1] as number;
    const shape = integers("Concat", [pieces, graph.ints([-1, width])], 3, { axis: { int: 0 } });
    return graph.recordOne({
      op: "Reshape",
      inputs: [x, shape],
      output: { shape: [`${length}_pieces`, `${length}_piece`, width] },
    });
  };
  const [m, n] = [a.shape[1] as number, b.shape[1] as number];
  const sum = (product: Value) => reshape(reduceSum(product, [0]), product.shape.slice(1));
  return m >= TALL * n
    ? swapLastTwo(sum(matmul(swapLastTwo(inPieces(b)), inPieces(a))))
    : sum(matmul(swapLastTwo(inPieces(a)), inPieces(b)));
}

/** Computes `scale · x + plus`. */
function scaledSum(x: Value, scale: number, plus?: Value): Value {
  const scaled = scale === 1 ? x : mul(x, x.graph.scalar(scale));
  return plus ? add(scaled, plus) : scaled;
}

/** Whether the first dimension is one of the graph's `Graph.smallDims`. */
function hasFewRows({ graph, shape: [rows] }: Value): boolean {
  return typeof rows === "string" && graph.smallDims.has(rows);
}

function hasStaticWidth({ shape }: Value): boolean {
  return typeof shape.at(-1) === "number";
}

/** Reshapes to `[rows, ...rest]` with as many rows as there are elements for. */
function reshapeRows(x: Value, rows: Dim, rest: readonly number[]): Value {
  const shape = x.graph.ints([-1, ...rest]);
  return x.graph.recordOne({ op: "Reshape", inputs: [x, shape], output: { shape: [rows, ...rest] } });
}

function swapLastTwo(x: Value): Value {
  const rank = x.shape.length;
  return transpose(x, [...Array.from({ length: rank - 2 }, (_, i) => i), rank - 1, rank - 2]);
}
