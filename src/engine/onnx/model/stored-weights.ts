/** Weights of a base model in the process's memory: in float32, or with matrices and embeddings in blocks of 4 or 8 bits. */
import { DataError } from "../../../base/errors.ts";
import { BLOCK_ELEMENTS, type BlockBits, type BlockTensor, BlockWriter, dequantize, roundBlock } from "../../../base/gguf/blocks.ts";
import { MAX_FLOAT16 } from "../../../base/util/float16.ts";
import type { ProcessorPrecision } from "../../engine-info.ts";
import { type BlockFormat, blockNames } from "../graph/block-inputs.ts";
import type { StoredFormat, StoredFormats } from "../graph/lower.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";
import { type Layout, layOut, type Parameter, viewOf } from "./parameters.ts";
import type { WeightSource } from "./safetensors.ts";
import { openBaseWeights } from "./weight-source.ts";
import { checkShapes, readBaseWeights, readInParallel, readParameter, unpackTensors } from "./weights.ts";
import { first, getOrThrow } from "../../../base/util/values.ts";

/** Matrix or embedding in blocks along `in`, as rows of weight files: `[out, in]`, or `[V, H]` of an embedding. */
export interface BlockMatrix extends BlockTensor {
  readonly rows: number;
  /** Elements of a row. */
  readonly width: number;
  /** Whether the blocks are the transpose of the parameter: true for a matrix, whose shape is `[in, out]`, false for an embedding. */
  readonly isTransposed: boolean;
}

/** Weights of a model. */
export interface StoredWeights {
  /** Layout of `flat`: the parameters in float32. */
  readonly layout: Layout;
  /** Parameters in float32. */
  readonly flat: Float32Array;
  /** Whether the matrices of `flat` are `[out, in]` as in weight files, not `[in, out]` as their parameters. @default false */
  readonly isTransposed?: boolean | undefined;
  /** Parameters in blocks by name; empty if all parameters are float32. */
  readonly blocks: ReadonlyMap<string, BlockMatrix>;
}

/** Returns weights that are all float32. */
export function float32Weights(layout: Layout, flat: Float32Array): StoredWeights {
  return { layout, flat, blocks: new Map() };
}

/** Returns a copy of the weights that are not matrices: embeddings, gains and biases. */
export function withoutMatrices({ layout, flat }: StoredWeights): StoredWeights {
  const rest = layOut(layout.parameters.filter(({ kind }) => kind !== "matrix"));
  const copy = new Float32Array(rest.length);
  const sources = new Map(layout.parameters.map((parameter) => [parameter.name, parameter]));
  for (const parameter of rest.parameters) viewOf(copy, parameter).set(viewOf(flat, getOrThrow(sources, parameter.name)));
  return float32Weights(rest, copy);
}

/** No weights. */
export const NO_WEIGHTS = float32Weights({ parameters: [], decayed: 0, length: 0 }, new Float32Array(0));

/**
 * Reads a base model's weights, one parameter at a time. With 4 or 8 bits, matrices and embeddings are stored in blocks. If the file has
 * blocks of 32 elements with at most as many bits, their values are kept; all other values are rounded, see {@link roundBlock}.
 *
 * @throws DataError `E_DATA` if a tensor is missing, has another shape or contains NaN or an infinity, or has elements beyond the range of
 *   the blocks; the message names the tensor.
 */
export async function readStoredWeights(directory: string, layout: Layout, precision: ProcessorPrecision): Promise<StoredWeights> {
  if (precision === "float32") return float32Weights(layout, await readBaseWeights(directory, layout));
  const source = await openBaseWeights(directory);
  try {
    checkShapes(source, layout);
    return await inBlocks(source, layout, precision);
  } finally {
    await source.close();
  }
}

/**
 * Reads a base model's weights in float32, with matrices as in the file: of a file in float32, without a copy.
 *
 * @param isChecked - Whether the values were checked before, in the same files.
 * @throws DataError `E_DATA` if a tensor is missing, has another shape or contains NaN or an infinity; the message names the tensor.
 */
export async function readTransposedWeights(directory: string, layout: Layout, isChecked: boolean): Promise<StoredWeights> {
  const source = await openBaseWeights(directory);
  try {
    checkShapes(source, layout);
    const flat = new Float32Array(layout.length);
    await readInParallel(source, tensorViews(flat, layout), isChecked);
    return { ...float32Weights(layout, flat), isTransposed: true };
  } finally {
    await source.close();
  }
}

/** Returns the tensors of weight files with their places in a flat vector with matrices `[out, in]`. */
function tensorViews(flat: Float32Array, layout: Layout): (readonly [string, Float32Array])[] {
  return layout.parameters.flatMap((parameter) => {
    const view = viewOf(flat, parameter);
    return parameter.files.map(({ name, start, width }) => {
      const rowLength = parameter.kind === "matrix" ? first(parameter.shape) : 1;
      return [name, parameter.kind === "embedding" ? view : view.subarray(start * rowLength, (start + width) * rowLength)] as const;
    });
  });
}

/** Stores weights in a precision. */
export async function storeWeights(flat: Float32Array, layout: Layout, precision: ProcessorPrecision): Promise<StoredWeights> {
  if (precision === "float32") return float32Weights(layout, flat);
  const tensors = new Map(unpackTensors(flat, layout).map((tensor) => [tensor.name, tensor]));
  const readPieces = async (name: string, visit: (piece: Float32Array, first: number) => void) => visit(tensors.get(name)!.data, 0);
  return inBlocks({ label: "weights", readPieces }, layout, precision);
}

/** Bits of an element of a matrix by precision. */
const BITS = { int4: 4, int8: 8 } as const satisfies Partial<Record<ProcessorPrecision, BlockBits>>;

/** Reads weights with matrices and embeddings in blocks, and all other parameters in float32. */
async function inBlocks(
  source: Pick<WeightSource, "label" | "readPieces" | "readBlocks">,
  layout: Layout,
  precision: keyof typeof BITS,
): Promise<StoredWeights> {
  const float32Layout = layOut(layout.parameters.filter((parameter) => !isMatrix(parameter)));
  const flat = new Float32Array(float32Layout.length);
  for (const parameter of float32Layout.parameters) await readParameter(viewOf(flat, parameter), source, parameter);
  const blocks = new Map<string, BlockMatrix>();
  for (const parameter of layout.parameters.filter(isMatrix))
    blocks.set(parameter.name, await readMatrix(source, parameter, BITS[precision]));
  return { layout: float32Layout, flat, blocks };
}

/** Whether a parameter is stored in blocks: a matrix or an embedding. */
function isMatrix({ kind }: Parameter): boolean {
  return kind === "matrix" || kind === "embedding";
}

/** Reads a matrix or embedding in blocks: without rounding where the source has such blocks, else rounded. */
async function readMatrix(
  source: Pick<WeightSource, "label" | "readPieces" | "readBlocks">,
  parameter: Parameter,
  bits: BlockBits,
): Promise<BlockMatrix> {
  const isTransposed = parameter.kind === "matrix";
  const [rows, width] = (isTransposed ? parameter.shape.toReversed() : parameter.shape) as [number, number];
  const blocksPerRow = Math.ceil(width / BLOCK_ELEMENTS);
  const writer = new BlockWriter(bits, rows * blocksPerRow);
  for (const { name, start } of parameter.files) {
    const firstBlock = (isTransposed ? start : 0) * blocksPerRow;
    if (await source.readBlocks?.(name, writer, firstBlock)) continue;
    const addPiece = rounding(writer, firstBlock, width, () => `${source.label}: tensor "${name}"`);
    await source.readPieces(name, addPiece);
  }
  return { ...writer.tensor, rows, width, isTransposed };
}

/**
 * Returns a function that takes the elements of a tensor in order, in pieces, and rounds them to blocks.
 *
 * @param width - Elements of a row.
 * @param where - Returns the tensor for error messages.
 */
function rounding(writer: BlockWriter, firstBlock: number, width: number, where: () => string): (piece: Float32Array) => void {
  /** Elements of the current block. Blocks do not cross rows: the last block of a row is padded with zeros. */
  const values = new Float32Array(BLOCK_ELEMENTS);
  const levels = new Int8Array(BLOCK_ELEMENTS);
  /** Index of the current block in the matrix, and column of the next element in its row. They carry over from piece to piece. */
  let block = firstBlock;
  let column = 0;
  const writeBlock = (filled: number) => {
    values.fill(0, filled);
    const scale = roundBlock(writer.bits, values, levels);
    if (!Number.isFinite(scale)) {
      const largest = values.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a));
      throw new DataError(
        `${where()}: expected weights of at most ${MAX_FLOAT16} times ${writer.bits === 4 ? 8 : 127}, got ${largest}: store the weights in float32, with the weight precision "float32"`,
      );
    }
    writer.write(block, levels, scale, 0);
    block++;
  };
  return (piece) => {
    for (let i = 0; i < piece.length;) {
      const filled = column % BLOCK_ELEMENTS;
      const count = Math.min(BLOCK_ELEMENTS - filled, width - column, piece.length - i);
      for (let k = 0; k < count; k++) values[filled + k] = piece[i + k]!;
      i += count;
      column += count;
      if (filled + count === BLOCK_ELEMENTS || column === width) writeBlock(filled + count);
      if (column === width) column = 0;
    }
  };
}

/** Returns a matrix in float32, in the shape of its parameter. */
export function toFloat32(matrix: BlockMatrix): Float32Array {
  const { rows, width, isTransposed, scales } = matrix;
  const blocksPerRow = scales.length / rows;
  const values = new Float32Array(rows * width);
  const row = new Float32Array(blocksPerRow * BLOCK_ELEMENTS);
  for (let r = 0; r < rows; r++) {
    dequantize(matrix, r * blocksPerRow, row);
    if (isTransposed) for (let i = 0; i < width; i++) values[i * rows + r] = row[i]!;
    else values.set(row.subarray(0, width), r * width);
  }
  return values;
}

/** Returns the graph inputs of weights as tensors, without a copy. */
export function storedFeeds(TensorClass: TensorConstructor, { layout, flat, isTransposed = false, blocks }: StoredWeights): Tensors {
  const tensors: Tensors = {};
  for (const parameter of layout.parameters) {
    const { name, kind, shape } = parameter;
    tensors[name] = new TensorClass("float32", viewOf(flat, parameter), isTransposed && kind === "matrix" ? shape.toReversed() : shape);
  }
  for (const [name, matrix] of blocks) {
    const names = blockNames(name);
    const { rows, bits, q, scales, offsets } = matrix;
    const blocksPerRow = scales.length / rows;
    tensors[names.q] = new TensorClass("uint8", q, [rows, blocksPerRow, (BLOCK_ELEMENTS / 8) * bits]);
    tensors[names.scales] = new TensorClass("float32", scales, [rows, blocksPerRow]);
    if (offsets) tensors[names.offsets] = new TensorClass("float32", offsets, [rows, blocksPerRow]);
  }
  return tensors;
}

/** Returns how a graph reads a matrix. @param rows - Number format of the rows that are multiplied. @default "float32" */
export function blockFormat({ bits, isTransposed, offsets }: BlockMatrix, rows: BlockFormat["rows"] = "float32"): BlockFormat {
  return { bits, isTransposed, hasOffsets: offsets !== null, rows };
}

/**
 * Returns how graphs read weights; undefined if all are float32 in the shape of their parameters.
 *
 * @param shared - Parameter in blocks of which products share a float32 copy. @default none
 */
export function storedFormats({ layout, isTransposed = false, blocks }: StoredWeights, shared?: string): StoredFormats | undefined {
  const matrices = isTransposed ? layout.parameters.filter(({ kind }) => kind === "matrix") : [];
  if (blocks.size === 0 && matrices.length === 0) return undefined;
  const inBlocks = Array.from(blocks, ([name, matrix]) => [name, { ...blockFormat(matrix), isShared: name === shared }] as const);
  return new Map<string, StoredFormat>([...matrices.map(({ name }) => [name, "transposed"] as const), ...inBlocks]);
}
