/**
 * Weights of large models, which stay as files store them: matrices are `[out, in]`. The runtime rearranges the right operand of a product
 * before it multiplies, and with few rows that takes longer than the product itself. So the matrices of the decode graph are constants of
 * its program, which the runtime rearranges once. Small models stay in the processor's caches, where rearranging costs little.
 */
import { setImmediate } from "node:timers/promises";
import { type Graph, matmul } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { baseLayout, type Layout, type Parameter, viewOf } from "../model/parameters.ts";
import { isLarge } from "../model/size.ts";
import type { Product } from "../model/model-inputs.ts";
import type { WeightInputs } from "./sampler-graph.ts";
import { first, itemAt } from "../../../base/util/values.ts";

/** Product `x·Wᵀ` with a matrix `[out, in]`. */
export const transposedProduct: Product = (x, weight) => matmul(x, weight, { transposeB: true });

/** Returns the shape of a parameter's graph input: `[out, in]` for the matrices of a large model. */
export function originalShape(config: ModelConfig, { kind, shape }: Parameter): readonly number[] {
  return kind === "matrix" && isLarge(config) ? shape.toReversed() : shape;
}

/** Declares one graph input per parameter of a model, with the shapes of {@link originalShape}. */
export function originalWeights(graph: Graph, config: ModelConfig): WeightInputs {
  const weights = new Map(baseLayout(config).parameters.map((each) => [each.name, graph.input(each.name, originalShape(config, each))]));
  return { weights, product: isLarge(config) ? transposedProduct : undefined };
}

/** Name of the graph input of a tied output head: the values of the embedding. */
const TIED_HEAD = "tied_head";

/**
 * Declares the weights of a large model for a program with {@link preparedMatrices}. A tied output head is an input of its own, because the
 * embedding is read by row and stays in the process's memory.
 */
export function preparedWeights(graph: Graph, config: ModelConfig): WeightInputs {
  const { hiddenSize, vocabularySize, isTied } = config;
  return { ...originalWeights(graph, config), tiedHead: isTied ? graph.input(TIED_HEAD, [vocabularySize, hiddenSize]) : undefined };
}

/** Returns the matrices of a large model as constants of a program, by the name of their graph input. */
export function preparedMatrices({ isTied }: ModelConfig, { parameters }: Layout, flat: Float32Array): Map<string, Float32Array> {
  const matrices = new Map<string, Float32Array>();
  for (const parameter of parameters) {
    if (parameter.kind === "matrix") matrices.set(parameter.name, viewOf(flat, parameter));
    else if (parameter.kind === "embedding" && isTied) matrices.set(TIED_HEAD, viewOf(flat, parameter));
  }
  return matrices;
}

/** Transposes every matrix of a flat vector from `[in, out]` to `[out, in]`, in place. Other events of the thread run in between. */
export async function transposeMatrices(flat: Float32Array, layout: Layout): Promise<void> {
  for (const parameter of layout.parameters) {
    if (parameter.kind !== "matrix") continue;
    const view = viewOf(flat, parameter);
    transposeInto(view.slice(), view, first(parameter.shape), itemAt(parameter.shape, 1));
    await setImmediate();
  }
}

/** Side of the square tiles that are transposed one after the other: their lines stay in the cache. */
const SQUARE = 32;

/** Writes the transpose of `from`, a matrix `[rows, columns]`, to `to`. */
function transposeInto(from: Float32Array, to: Float32Array, rows: number, columns: number): void {
  for (let top = 0; top < rows; top += SQUARE) {
    const bottom = Math.min(rows, top + SQUARE);
    for (let left = 0; left < columns; left += SQUARE) {
      const right = Math.min(columns, left + SQUARE);
      for (let row = top; row < bottom; row++)
        for (let column = left; column < right; column++) to[column * rows + row] = from[row * columns + column]!;
    }
  }
}
