/**
 * Matrices of a sampler's program. They are constants of the program, so the runtime rearranges them once instead of at every run: in
 * float32, or in blocks of 4 or 8 bits, of which few rows read a fraction of the bytes.
 *
 * This holds for matrices in blocks and for large models.
 */
import { setImmediate } from "node:timers/promises";
import { dequantize } from "../../../base/gguf/blocks.ts";
import type { RolloutPrecision } from "../../engine-info.ts";
import { blockNames, BLOCK_SIZE } from "../graph/block-inputs.ts";
import type { Graph } from "../graph/index.ts";
import type { StoredFormat, StoredFormats } from "../graph/lower.ts";
import type { ModelConfig } from "../model/config.ts";
import { weightInputs } from "../model/model-inputs.ts";
import { baseLayout, type Parameter, viewOf } from "../model/parameters.ts";
import { blockFormat, type BlockMatrix, storedFormats, type StoredWeights, toFloat32 } from "../model/stored-weights.ts";
import type { Constants } from "../runtime/program.ts";
import type { WeightInputs } from "./sampler-graph.ts";

/**
 * Name of the graph input of a tied output head: the values of the embedding. It is an input of its own, because the embedding is read by
 * row and stays in the process's memory.
 */
const TIED_HEAD = "tied_head";

/** Matrix of a program: the parameter, and the name of the graph input that products read. */
interface Matrix {
  readonly name: string;
  readonly parameter: Parameter;
}

/** Returns the matrices of a model that products read, the output head included. */
function matricesOf(config: ModelConfig): Matrix[] {
  return baseLayout(config).parameters.flatMap((parameter): Matrix[] => {
    if (parameter.kind === "matrix") return [{ name: parameter.name, parameter }];
    return parameter.kind === "embedding" && config.isTied ? [{ name: TIED_HEAD, parameter }] : [];
  });
}

/** Declares the weights of a model. @param isPrepared - Whether the program has the constants of {@link preparedMatrices}. */
export function declareWeights(graph: Graph, config: ModelConfig, isPrepared: boolean): WeightInputs {
  const weights = weightInputs(graph, baseLayout(config));
  const head = isPrepared ? matricesOf(config).find(({ name }) => name === TIED_HEAD) : undefined;
  return { weights, tiedHead: head && graph.input(head.name, head.parameter.shape) };
}

/** Matrices of a program. */
export interface PreparedMatrices {
  readonly constants: Constants;
  /** Graph inputs that are not float32. */
  readonly stored: StoredFormats;
}

/**
 * Returns the matrices of a model as constants of a program. Other events of the thread run while they are rounded.
 *
 * @param rows - Number format of the rows of the products.
 */
export async function preparedMatrices(config: ModelConfig, held: StoredWeights, rows: RolloutPrecision): Promise<PreparedMatrices> {
  const constants = new Map<string, Float32Array | Uint8Array>();
  const stored = new Map<string, StoredFormat>(storedFormats(held));
  for (const { name, parameter } of matricesOf(config)) {
    const matrix = held.blocks.get(parameter.name);
    if (matrix?.bits === 8 && rows === "float32") {
      // The runtime has no kernel for these products: it dequantizes the whole matrix in each run, which takes as long as some 60 rows.
      constants.set(name, toFloat32(matrix));
      stored.delete(name);
      await setImmediate();
    } else if (matrix !== undefined) {
      const inFormat = rows === "int8" ? inEightBits(matrix) : matrix;
      stored.set(name, blockFormat(inFormat, rows));
      addBlocks(constants, name, inFormat);
      await setImmediate();
    } else if (rows === "float32") constants.set(name, viewOf(held.flat, parameter));
    else {
      const isTransposed = parameter.kind === "matrix";
      const hasRows = !isTransposed || held.isTransposed === true;
      const shape = (isTransposed && hasRows ? parameter.shape.toReversed() : parameter.shape) as [number, number];
      const rounded = quantize(viewOf(held.flat, parameter), { shape, isTransposed: hasRows });
      stored.set(name, { bits: 8, isTransposed, hasOffsets: false, rows });
      addBlocks(constants, name, { ...rounded, offsets: null });
      await setImmediate();
    }
  }
  return { constants, stored };
}

function addBlocks(
  constants: Map<string, Float32Array | Uint8Array>,
  name: string,
  { q, scales, offsets }: Pick<BlockMatrix, "q" | "scales" | "offsets">,
): void {
  const names = blockNames(name);
  constants.set(names.q, q).set(names.scales, scales);
  if (offsets) constants.set(names.offsets, offsets);
}

/** Rows of a matrix that {@link inEightBits} holds in float32 at a time. */
const CONVERTED_ROWS = 64;

/**
 * Returns a matrix in 8 bits without offsets; a matrix in 4 bits is rounded. With rows in 8 bits, a product takes as long for 8-bit as for
 * 4-bit matrices, computes a single row with the same bits as several, and needs no further product with the offsets.
 */
export function inEightBits(matrix: BlockMatrix): BlockMatrix {
  if (matrix.bits === 8 && matrix.offsets === null) return matrix;
  const { rows, scales } = matrix;
  const blocksPerRow = scales.length / rows;
  const width = blocksPerRow * BLOCK_SIZE;
  const q = new Uint8Array(rows * width);
  const newScales = new Float32Array(scales.length);
  for (let row = 0; row < rows; row += CONVERTED_ROWS) {
    const count = Math.min(CONVERTED_ROWS, rows - row);
    const values = new Float32Array(count * width);
    dequantize(matrix, row * blocksPerRow, values);
    const rounded = quantize(values, { shape: [count, width], isTransposed: true });
    q.set(rounded.q, row * width);
    newScales.set(rounded.scales, row * blocksPerRow);
  }
  return { ...matrix, bits: 8, q, scales: newScales, offsets: null };
}

/** Largest absolute value of an element rounded to 8 bits. */
const MAX_LEVEL = 127;
/** Element of a quantized matrix that stands for 0. */
const ZERO = 128;

/**
 * Rounds a matrix to 8 bits, as rows of `in` elements: `values ≈ scale · (q − 128)`, with a scale for each block of
 * {@link BLOCK_SIZE} elements of a row, the largest absolute value of the block over 127.
 *
 * @returns Elements `[out, blocks, 32]`, padded with zeros at the end of a row, and scales `[out, blocks]`.
 */
export function quantize(
  values: Float32Array,
  { shape, isTransposed }: { readonly shape: readonly [number, number]; readonly isTransposed: boolean },
): { readonly q: Uint8Array; readonly scales: Float32Array } {
  const [first, second] = shape;
  const [rows, width, nextRow, next] = isTransposed ? [first, second, second, 1] : [second, first, 1, second];
  const blocks = Math.ceil(width / BLOCK_SIZE);
  const q = new Uint8Array(rows * blocks * BLOCK_SIZE).fill(ZERO);
  const scales = new Float32Array(rows * blocks);
  for (let block = 0; block < scales.length; block++) {
    const row = Math.floor(block / blocks);
    const column = (block - row * blocks) * BLOCK_SIZE;
    const count = Math.min(BLOCK_SIZE, width - column);
    const start = row * nextRow + column * next;
    let largest = 0;
    for (let i = 0; i < count; i++) largest = Math.max(largest, Math.abs(values[start + i * next]!));
    scales[block] = largest / MAX_LEVEL;
    if (largest === 0) continue;
    const inverse = MAX_LEVEL / largest;
    for (let i = 0; i < count; i++) q[block * BLOCK_SIZE + i] = Math.round(values[start + i * next]! * inverse) + ZERO;
  }
  return { q, scales };
}
