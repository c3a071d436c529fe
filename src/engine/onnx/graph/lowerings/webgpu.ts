/** Lowerings for the WebGPU execution provider of ONNX Runtime 1.30: operators without a kernel, or with a kernel that is not exact. */
import type { Attribute, Dim, DType, NodeSpec, Value } from "../graph.ts";
import type { LoweringTable } from "../lower.ts";
import { reduceSum } from "../ops/broadcast.ts";
import { add, cast, div, equal, exp, log, mul, sqrt, sub } from "../ops/elementwise.ts";
import { split } from "../ops/join.ts";
import { matmul } from "../ops/linear.ts";
import { reduceMax } from "../ops/reduce.ts";
import { reshape, transpose } from "../ops/shape.ts";

const int = (attribute: Attribute | undefined) => (attribute !== undefined && "int" in attribute ? Number(attribute.int) : 0);
const float = (attribute: Attribute | undefined, otherwise: number) =>
  attribute !== undefined && "float" in attribute ? attribute.float : otherwise;

/** Max elements of a product that is summed in pieces: for larger ones, its tiles alone fill a GPU. */
const MAX_SPLIT_RESULT = 2 ** 18;
/** Length of the pieces of a long sum. */
const PIECE = 128;
/** Factor by which a transposed matrix is longer than wide if transposing the other matrix and the result is cheaper. */
const TALL = 8;

/** Min length of a sum that is cut, of matrices with a static shape, and the number of parts. */
const LONG = 2048;
const PARTS = 4;

/** Max outputs of a kernel: every adapter has at least eight storage buffers per shader stage, and one is the input. */
const MAX_OUTPUTS = 7;

/** Lowerings of the device `webgpu`. */
export const WEBGPU_LOWERINGS: LoweringTable = {
  // One tile goes through a sum step by step: with few rows, the time of a product is the length of its sum.
  MatMul: (_, [a, b]) => {
    const [k, n] = b!.shape;
    if (a!.shape.length !== 2 || b!.shape.length !== 2 || typeof k !== "number" || typeof n !== "number") return null;
    if (k < LONG || n > k / 2 || k % (4 * PARTS) !== 0) return null;
    const [m] = a!.shape as [Dim];
    const length = k / PARTS;
    const left = transpose(reshapeRows(a!, m, [PARTS, length]), [1, 0, 2]);
    const product = matmul(left, reshape(b!, [PARTS, length, n]));
    return [reshapeRows(reduceSum(product, [0]), m, [n])];
  },

  // The kernel reads transposed matrices element by element: on an H100, 6 TFLOP/s instead of 20.
  Gemm: ({ attributes }, [a, b, plus]) => {
    const [isLeft, isRight] = [int(attributes["transA"]) === 1, int(attributes["transB"]) === 1];
    if (!isLeft && !isRight) return null;
    const scale = float(attributes["alpha"], 1);
    const [k] = (isLeft ? a!.shape : a!.shape.slice(1)) as [Dim];
    const [m, n] = [a!.shape[isLeft ? 1 : 0]!, b!.shape[isRight ? 0 : 1]!];
    const isTall = !isLeft && isRight && Number(n) >= TALL * Number(k);
    const isLong = isLeft && !isRight && typeof k === "string" && Number(m) * Number(n) <= MAX_SPLIT_RESULT;
    const product = isTall
      ? swapLastTwo(matmul(b!, swapLastTwo(a!)))
      : isLong
        ? sumOfPieces(a!, b!)
        : matmul(isLeft ? swapLastTwo(a!) : a!, isRight ? swapLastTwo(b!) : b!);
    const scaled = scale === 1 ? product : mul(product, product.graph.scalar(scale));
    return [plus ? add(scaled, plus) : scaled];
  },

  // No kernel.
  "com.microsoft.FusedMatMul": ({ attributes }, [a, b]) => {
    const left = int(attributes["transA"]) === 1 ? swapLastTwo(a!) : a!;
    const right = int(attributes["transB"]) === 1 ? swapLastTwo(b!) : b!;
    const scale = float(attributes["alpha"], 1);
    const scaled = (x: Value) => (scale === 1 ? x : mul(x, x.graph.scalar(scale)));
    // Vectors of queries are shorter than their scores.
    const isShort = typeof left.shape.at(-1) === "number" && typeof right.shape.at(-1) === "string";
    return [isShort ? matmul(scaled(left), right) : scaled(matmul(left, right))];
  },

  // The kernel leaves the second output, the inverse standard deviation, unwritten.
  SimplifiedLayerNormalization: ({ attributes }, [x, gain], isUsed) => {
    if (!isUsed(1)) return null;
    const { graph } = x!;
    const axis = x!.shape.length - 1;
    const mean = mul(reduceSum(mul(x!, x!), [axis]), graph.scalar(1 / (x!.shape[axis] as number)));
    const inverse = div(graph.scalar(1), sqrt(add(mean, graph.scalar(float(attributes["epsilon"], 1e-5)))));
    return [mul(mul(x!, inverse), gain!), inverse];
  },

  // The kernel writes all outputs at once, and fails if the adapter has fewer storage buffers.
  Split: ({ attributes, outputs }, [x]) => {
    const axis = int(attributes["axis"]);
    const sizes = outputs.map(({ shape }) => shape[axis]!);
    const isStatic = (size: Dim): size is number => typeof size === "number";
    return sizes.length > MAX_OUTPUTS && sizes.every(isStatic) ? splitInStages(x!, axis, sizes) : null;
  },

  // No kernel.
  LogSoftmax: (_, [x]) => {
    const axis = x!.shape.length - 1;
    const centered = sub(x!, reduceMax(x!, [axis]));
    return [sub(centered, log(reduceSum(exp(centered), [axis])))];
  },

  // ScatterElements with addition sums rows of equal index in no fixed order. Here each row becomes the old row plus the sum of all updates
  // with its index, by one product, so rows of equal index are equal, and the order in which they are written does not matter.
  "whetstone.ScatterAddRows": (_, [table, indices, updates]) => {
    const { graph } = table!;
    const [rows] = updates!.shape as [Dim, Dim];
    const record = (op: string, inputs: readonly Value[], shape: readonly Dim[], dtype: DType, attributes: NodeSpec["attributes"] = {}) =>
      graph.record({ op, inputs, attributes, outputs: [{ shape, dtype }] })[0]!;
    const ids = cast(indices!, "float32");
    const sums = matmul(cast(equal(reshape(ids, [rows, 1]), ids), "float32"), updates!);
    const changed = add(record("Gather", [table!, indices!], updates!.shape, "float32", { axis: { int: 0 } }), sums);
    return [record("ScatterND", [table!, reshape(indices!, [rows, 1]), changed], table!.shape, "float32")];
  },
};

/**
 * Computes `aᵀ·b` for `a` `[K, M]` and `b` `[K, N]` in pieces of `K`, at the same time: one tile of a product goes through `K` step by step,
 * and a small result has few tiles.
 */
function sumOfPieces(a: Value, b: Value): Value {
  const [left, right] = [transpose(inPieces(a), [0, 2, 1]), inPieces(b)];
  const product = matmul(left, right);
  return reshape(reduceSum(product, [0]), product.shape.slice(1));
}

/** Splits `x` into at most {@link MAX_OUTPUTS} parts, and each part in the same way, until the pieces have the given sizes. */
function splitInStages(x: Value, axis: number, sizes: readonly number[]): Value[] {
  if (sizes.length === 1) return [x];
  let perPart = 1;
  while (perPart * MAX_OUTPUTS < sizes.length) perPart *= MAX_OUTPUTS;
  const parts = Array.from({ length: Math.ceil(sizes.length / perPart) }, (_, i) => sizes.slice(i * perPart, (i + 1) * perPart));
  const pieces = split(
    x,
    axis,
    parts.map((part) => part.reduce((a, b) => a + b, 0)),
  );
  return parts.flatMap((part, i) => splitInStages(pieces[i]!, axis, part));
}

/** Pads `x` `[K, N]` with zeros and returns it as `[pieces, PIECE, N]`. */
function inPieces(x: Value): Value {
  const { graph } = x;
  const [length, width] = x.shape as [string, number];
  const integers = (op: string, inputs: readonly Value[], size: number, attributes: NodeSpec["attributes"] = {}) =>
    graph.record({ op, inputs, attributes, outputs: [{ shape: [size], dtype: "int64" }] })[0]!;
  // Read from this value: values of different lengths may have the same name of a dimension.
  const rows = integers("Shape", [x], 1, { start: { int: 0 }, end: { int: 1 } });
  const missing = integers("Mod", [integers("Neg", [rows], 1), graph.ints([PIECE])], 1);
  const pads = integers("Concat", [graph.ints([0, 0]), missing, graph.ints([0])], 4, { axis: { int: 0 } });
  const [padded] = graph.record({ op: "Pad", inputs: [x, pads], outputs: [{ shape: [`${length}_padded`, width] }] });
  return reshapeRows(padded!, `${length}_pieces`, [PIECE, width]);
}

/** Reshapes to `[rows, ...rest]` with as many rows as there are elements for. */
function reshapeRows(x: Value, rows: Dim, rest: readonly number[]): Value {
  const shape = x.graph.ints([-1, ...rest]);
  return x.graph.record({ op: "Reshape", inputs: [x, shape], outputs: [{ shape: [rows, ...rest] }] })[0]!;
}

function swapLastTwo(x: Value): Value {
  const rank = x.shape.length;
  return transpose(x, [...Array.from({ length: rank - 2 }, (_, i) => i), rank - 1, rank - 2]);
}
