/** Weights of large models, which stay as files store them: matrices are `[out, in]`. */
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
