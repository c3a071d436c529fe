/**
 * Inputs of a lowered graph that are matrices in blocks: each node that reads one becomes a product with the quantized matrix, or reads a
 * float32 copy of its own.
 *
 * An element is `W[n, k] = scales[n, k / 32] · (q[n, k] − zero) + offsets[n, k / 32]` with `zero = 2^(bits − 1)`, for `N` rows of `K`
 * elements; offsets are optional. The products are
 *
 * - along the rows, `x·Wᵀ`: `MatMulNBits` for scales and elements, and a product of the sums of `x` over each block with the offsets;
 * - across the rows, `g·W`, in the backward pass: a product with `scales · (q − zero)` in float32, and `g·offsets` for all elements of a
 *   block.
 *
 * @source https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
 */
import { ShapeError } from "../../../base/errors.ts";
import type { Graph, Node, Value } from "./graph.ts";
import { add, cast, mul } from "./ops/elementwise.ts";
import { expandTo } from "./ops/broadcast.ts";
import { concat, split } from "./ops/join.ts";
import { matmul } from "./ops/linear.ts";
import { padLast, reshape, transpose } from "./ops/shape.ts";
import { first, getOrInsert, itemAt } from "../../../base/util/values.ts";

/** Elements of a block. */
export const BLOCK_SIZE = 32;

/** Form in which a float32 input of two dimensions is stored in blocks. */
export interface BlockFormat {
  /** Bits of an element. */
  readonly bits: 4 | 8;
  /** Whether the rows of blocks are the columns of the input, as of a matrix `[in, out]`; else they are its rows. */
  readonly isTransposed: boolean;
  /** Whether blocks have offsets. */
  readonly hasOffsets: boolean;
  /**
   * Number format of the rows that are multiplied along the blocks. `"int8"` rounds them to 8 bits in blocks of 32, with a float32 scale
   * each; sums of blocks are added in float32.
   */
  readonly rows: "float32" | "int8";
  /**
   * Whether products read one float32 copy of the matrix, which stays in memory from the first product to the last. For a matrix that
   * several nodes in a row read, as slices of an output head do. @default false
   */
  readonly isShared?: boolean | undefined;
}

/** Returns the names of the inputs of a matrix in blocks. */
export const blockNames = (name: string) => ({ q: `${name}_q`, scales: `${name}_scales`, offsets: `${name}_offsets` });

/** Matrix in blocks as inputs of a lowered graph. */
export interface BlockInput extends BlockFormat {
  /** Number of rows `N` and elements of a row `K`. */
  readonly size: readonly [number, number];
  /** Elements, uint8, `[N, blocks, 4 · bits]`: pairs of 4-bit numbers, the lower bits first, or bytes. */
  readonly q: Value;
  /** `[N, blocks]`. */
  readonly scales: Value;
  /** `[N, blocks]`. */
  readonly offsets: Value | null;
}

/** Declares the inputs of a matrix in blocks. @throws ShapeError `E_SHAPE` if the input is not a matrix of fixed size. */
export function blockInput(graph: Graph, { name, shape }: Value, format: BlockFormat): BlockInput {
  const [first, second] = shape;
  if (typeof first !== "number" || typeof second !== "number" || shape.length !== 2)
    throw new ShapeError(`Expected an input in blocks to be a matrix of fixed size, got "${name}" of shape [${shape.join(", ")}]`);
  const [rows, width] = format.isTransposed ? [second, first] : [first, second];
  const blocks = Math.ceil(width / BLOCK_SIZE);
  const names = blockNames(name);
  return {
    ...format,
    size: [rows, width],
    q: graph.input(names.q, [rows, blocks, (BLOCK_SIZE / 8) * format.bits], "uint8"),
    scales: graph.input(names.scales, [rows, blocks]),
    offsets: format.hasOffsets ? graph.input(names.offsets, [rows, blocks]) : null,
  };
}

/**
 * Records nodes that compute the same as a node that reads a matrix in blocks, and returns its output.
 *
 * @param position - Position of the matrix among the inputs of the node.
 * @param inputs - Inputs of the node in the new graph; the one at `position` is not used.
 * @throws ShapeError `E_SHAPE` for an operator other than Gather of rows and products with the matrix on the right.
 */
export function readBlocks(node: Node, position: number, inputs: readonly Value[], matrix: BlockInput): Value {
  const { op, domain, attributes } = node;
  const flag = (name: string) => Number(attributes[name] && "int" in attributes[name] ? attributes[name].int : 0) === 1;
  if (domain === "" && op === "Gather" && position === 0 && !matrix.isTransposed) return gatheredRows(matrix, itemAt(inputs, 1));
  const isProduct = domain === "" && (op === "MatMul" || op === "Gemm") && position === 1 && !flag("transA");
  if (!isProduct) throw new ShapeError(`Expected a matrix in blocks to be the right operand of a product or a table of rows, got ${op}`);
  const alpha = attributes["alpha"] && "float" in attributes["alpha"] ? attributes["alpha"].float : 1;
  const x = alpha === 1 ? first(inputs) : mul(first(inputs), first(inputs).graph.scalar(alpha));
  const product = flag("transB") === matrix.isTransposed ? productAcross(x, matrix) : productAlong(x, matrix);
  const plus = inputs[2];
  return plus === undefined ? product : add(plus, product);
}

/** Accuracy levels of `MatMulNBits`: products in float32, and rows rounded to 8 bits. */
const ACCURACY = { float32: 0, int8: 4 } as const;

/** Computes `x·Wᵀ`. Rounded to 8 bits or not, the result of a row does not depend on the other rows. */
function productAlong(x: Value, matrix: BlockInput): Value {
  const [, width] = matrix.size;
  const product = matrix.isShared ? matmul(inHalves(x, matrix), floatCopy(matrix), { transposeB: true }) : quantizedProduct(x, matrix);
  return matrix.offsets === null ? product : matmul(blockSums(x, width), matrix.offsets, { transposeB: true, plus: product });
}

function quantizedProduct(x: Value, { bits, rows, size, q, scales }: BlockInput): Value {
  const [height, width] = size;
  return x.graph.recordOne({
    op: "MatMulNBits",
    domain: "com.microsoft",
    inputs: [x, q, scales],
    attributes: {
      K: { int: width },
      N: { int: height },
      bits: { int: bits },
      block_size: { int: BLOCK_SIZE },
      accuracy_level: { int: ACCURACY[rows] },
    },
    output: { shape: [first(x.shape), height] },
  });
}

/** Sums each block of the rows `[R, K]`: `[R, blocks]`. */
function blockSums(x: Value, width: number): Value {
  const rows = first(x.shape);
  const blocks = Math.ceil(width / BLOCK_SIZE);
  const padded = padLast(x, blocks * BLOCK_SIZE, 0);
  return x.graph.recordOne({
    op: "ReduceSum",
    inputs: [reshape(padded, [rows, blocks, BLOCK_SIZE]), x.graph.ints([2])],
    attributes: { keepdims: { int: 0 } },
    output: { shape: [rows, blocks] },
  });
}

/** Computes `g·W`. */
function productAcross(g: Value, matrix: BlockInput): Value {
  const { bits, size, offsets } = matrix;
  const rows = first(g.shape);
  const [, width] = size;
  const blocks = Math.ceil(width / BLOCK_SIZE);
  const padded = blocks * BLOCK_SIZE;
  const product = matmul(g, floatCopy(matrix));
  const half = BLOCK_SIZE / 2;
  // The product of the halves has the elements with even numbers of each block first.
  const inOrder = bits === 4 ? transpose(reshape(product, [rows, blocks, 2, half]), [0, 1, 3, 2]) : product;
  const perBlock = reshape(inOrder, [rows, blocks, BLOCK_SIZE]);
  const sum = offsets === null ? perBlock : add(perBlock, reshape(matmul(g, offsets), [rows, blocks, 1]));
  return firstColumns(reshape(sum, [rows, padded]), width);
}

/** Float32 copies of shared matrices. */
const copies = new WeakMap<BlockInput, Value>();

/** Returns `scales · (q − zero)`, `[N, K]` with `K` padded to whole blocks; of 4-bit numbers in the order of {@link halves}. */
function floatCopy(matrix: BlockInput): Value {
  return matrix.isShared ? getOrInsert(copies, matrix, () => dequantized(matrix)) : dequantized(matrix);
}

function dequantized({ bits, size, q, scales }: BlockInput): Value {
  const { graph } = q;
  const [height, width] = size;
  const blocks = Math.ceil(width / BLOCK_SIZE);
  const padded = blocks * BLOCK_SIZE;
  return graph.recordOne({
    op: "DequantizeLinear",
    inputs: [reshape(bits === 4 ? halves(q) : q, [height, padded]), scales, expandTo(byte(graph, 2 ** (bits - 1)), [height, blocks])],
    attributes: { axis: { int: 1 }, block_size: { int: BLOCK_SIZE } },
    output: { shape: [height, padded] },
  });
}

/** Returns rows in the order of the elements of {@link floatCopy}, padded to whole blocks. */
function inHalves(x: Value, { bits, size: [, width] }: BlockInput): Value {
  const rows = first(x.shape);
  const blocks = Math.ceil(width / BLOCK_SIZE);
  const padded = padLast(x, blocks * BLOCK_SIZE, 0);
  if (bits === 8) return padded;
  return reshape(transpose(reshape(padded, [rows, blocks, BLOCK_SIZE / 2, 2]), [0, 1, 3, 2]), [rows, blocks * BLOCK_SIZE]);
}

/** Unpacks 4-bit numbers `[N, blocks, 16]`: of each block, the 16 numbers in the lower bits, then the 16 others. */
function halves(q: Value): Value {
  const { graph, shape } = q;
  const part = (op: string, operand: number, attributes = {}) =>
    graph.recordOne({ op, inputs: [q, byte(graph, operand)], attributes, output: { shape, dtype: "uint8" } });
  return concat([part("BitwiseAnd", 15), part("BitShift", 4, { direction: { string: "RIGHT" } })], 2, BLOCK_SIZE);
}

/** Returns a constant byte, `[1]`. */
function byte(graph: Graph, value: number): Value {
  return cast(graph.ints([value]), "uint8");
}

/** Returns the rows with these indices in float32, `[R, K]`. */
function gatheredRows({ bits, size, q, scales, offsets }: BlockInput, indices: Value): Value {
  const { graph, shape } = indices;
  const [height, width] = size;
  const blocks = Math.ceil(width / BLOCK_SIZE);
  const rows = first(shape);
  const values = graph.recordOne({
    op: "GatherBlockQuantized",
    domain: "com.microsoft",
    inputs: [reshape(q, [height, blocks * (BLOCK_SIZE / 8) * bits]), indices, scales],
    attributes: { bits: { int: bits }, block_size: { int: BLOCK_SIZE }, gather_axis: { int: 0 }, quantize_axis: { int: 1 } },
    output: { shape: [rows, blocks * BLOCK_SIZE] },
  });
  if (offsets === null) return firstColumns(values, width);
  const gathered = graph.recordOne({
    op: "Gather",
    inputs: [offsets, indices],
    attributes: { axis: { int: 0 } },
    output: { shape: [rows, blocks] },
  });
  const sum = add(reshape(values, [rows, blocks, BLOCK_SIZE]), reshape(gathered, [rows, blocks, 1]));
  return firstColumns(reshape(sum, [rows, blocks * BLOCK_SIZE]), width);
}

/** Returns the first `width` columns of a matrix. */
function firstColumns(x: Value, width: number): Value {
  const total = itemAt(x.shape, 1) as number;
  return total === width ? x : first(split(x, 1, [width, total - width]));
}
