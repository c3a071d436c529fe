/**
 * Matrices of a large model's decode graph. They are constants of its program, so the runtime rearranges them once instead of at every
 * token: in float32, or rounded to 8 bits, which few rows read from memory in a quarter of the time.
 */
import { setImmediate } from "node:timers/promises";
import type { RolloutPrecision } from "../../engine-info.ts";
import { type Graph, QUANTIZED_BLOCK, quantizedProduct, type Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { weightInputs } from "../model/model-inputs.ts";
import { baseLayout, viewOf } from "../model/parameters.ts";
import type { Constants } from "../runtime/program.ts";
import type { Weights } from "./policies.ts";
import type { WeightInputs } from "./sampler-graph.ts";
import { getOrThrow } from "../../../base/util/values.ts";

/**
 * Name of the graph input of a tied output head: the values of the embedding. It is an input of its own, because the embedding is read by
 * row and stays in the process's memory.
 */
const TIED_HEAD = "tied_head";

/** Matrix of the decode graph. */
interface Matrix {
  readonly name: string;
  readonly shape: readonly [number, number];
  /** Whether the shape is `[out, in]`, as of an embedding, instead of `[in, out]`. */
  readonly isTransposed: boolean;
  /** Returns the values in a flat vector of the model. */
  readonly read: (flat: Float32Array) => Float32Array;
}

/** Returns the matrices of a large model, the output head included. */
function matricesOf(config: ModelConfig): Matrix[] {
  return baseLayout(config).parameters.flatMap((parameter): Matrix[] => {
    const shape = parameter.shape as [number, number];
    const read = (flat: Float32Array) => viewOf(flat, parameter);
    if (parameter.kind === "matrix") return [{ name: parameter.name, shape, isTransposed: false, read }];
    return parameter.kind === "embedding" && config.isTied ? [{ name: TIED_HEAD, shape, isTransposed: true, read }] : [];
  });
}

/** Returns the names of the graph inputs of a matrix in 8 bits. */
const quantizedNames = ({ name }: Matrix) => ({ q: `${name}_q`, scales: `${name}_scales` });

/** Declares the weights of a large model for a program with the constants of {@link preparedMatrices}. */
export function preparedWeights(graph: Graph, config: ModelConfig, precision: RolloutPrecision): WeightInputs {
  const original = weightInputs(graph, baseLayout(config));
  const scalesOf = new Map<Value, Value>();
  const declare = (matrix: Matrix): Value => {
    if (precision === "float32") return original.get(matrix.name) ?? graph.input(matrix.name, matrix.shape);
    const [width, inner] = matrix.isTransposed ? matrix.shape : matrix.shape.toReversed();
    const names = quantizedNames(matrix);
    const blocks = Math.ceil(inner / QUANTIZED_BLOCK);
    const q = graph.input(names.q, [width, blocks, QUANTIZED_BLOCK], "uint8");
    scalesOf.set(q, graph.input(names.scales, [width, blocks]));
    return q;
  };
  const matrices = new Map(matricesOf(config).map((matrix) => [matrix.name, declare(matrix)]));
  return {
    weights: new Map([...original, ...matrices]),
    product: precision === "float32" ? undefined : (x, q) => quantizedProduct(x, q, getOrThrow(scalesOf, q)),
    tiedHead: matrices.get(TIED_HEAD),
  };
}

/** Returns the matrices of a large model as constants of a program. Other events of the thread run while they are rounded. */
export async function preparedMatrices({ config, flat }: Weights, precision: RolloutPrecision): Promise<Constants> {
  const constants = new Map<string, Float32Array | Uint8Array>();
  for (const matrix of matricesOf(config)) {
    const values = matrix.read(flat);
    if (precision === "float32") {
      constants.set(matrix.name, values);
      continue;
    }
    const names = quantizedNames(matrix);
    const { q, scales } = quantize(values, matrix);
    constants.set(names.q, q).set(names.scales, scales);
    await setImmediate();
  }
  return constants;
}

/** Largest absolute value of an element rounded to 8 bits. */
const MAX_LEVEL = 127;
/** Element of a quantized matrix that stands for 0. */
const ZERO = 128;

/**
 * Rounds a matrix to 8 bits, as rows of `in` elements: `values ≈ scale · (q − 128)`, with a scale for each block of
 * {@link QUANTIZED_BLOCK} elements of a row, the largest absolute value of the block over 127.
 *
 * @returns Elements `[out, blocks, 32]`, padded with zeros at the end of a row, and scales `[out, blocks]`.
 */
export function quantize(
  values: Float32Array,
  { shape, isTransposed }: Pick<Matrix, "shape" | "isTransposed">,
): { readonly q: Uint8Array; readonly scales: Float32Array } {
  const [first, second] = shape;
  const [rows, width, nextRow, next] = isTransposed ? [first, second, second, 1] : [second, first, 1, second];
  const blocks = Math.ceil(width / QUANTIZED_BLOCK);
  const q = new Uint8Array(rows * blocks * QUANTIZED_BLOCK).fill(ZERO);
  const scales = new Float32Array(rows * blocks);
  for (let block = 0; block < scales.length; block++) {
    const row = Math.floor(block / blocks);
    const column = (block - row * blocks) * QUANTIZED_BLOCK;
    const count = Math.min(QUANTIZED_BLOCK, width - column);
    const start = row * nextRow + column * next;
    let largest = 0;
    for (let i = 0; i < count; i++) largest = Math.max(largest, Math.abs(values[start + i * next]!));
    scales[block] = largest / MAX_LEVEL;
    if (largest === 0) continue;
    const inverse = MAX_LEVEL / largest;
    for (let i = 0; i < count; i++) q[block * QUANTIZED_BLOCK + i] = Math.round(values[start + i * next]! * inverse) + ZERO;
  }
  return { q, scales };
}
