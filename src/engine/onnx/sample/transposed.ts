/**
 * Products with the transposed weights of large models. The runtime rearranges the right operand of a product before it multiplies, and
 * with few rows that takes longer than the product itself. So weights of large models stay as files store them, `[out, in]`, and are the
 * left operand: `yᵀ = W·xᵀ`. Small models stay in the processor's caches, where transposing the rows costs as much as it saves.
 */
import { setImmediate } from "node:timers/promises";
import { type Graph, matmul, productOfEach, reshape, transpose, type Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { baseLayout, type Layout, type Parameter, viewOf } from "../model/parameters.ts";
import { isLarge } from "../model/size.ts";
import type { Product } from "../model/model-inputs.ts";
import { first, itemAt } from "../../../base/util/values.ts";

/**
 * Rows multiplied together. The summation order of a product depends on the number of columns of the right operand, so the number is fixed
 * to make a row's bits batch-invariant. 16 rows fill a register: fewer would cost the same.
 */
export const GROUP_ROWS = 16;

/** Returns `rows` rounded up to a multiple of {@link GROUP_ROWS}. */
export function inGroups(rows: number): number {
  return Math.ceil(rows / GROUP_ROWS) * GROUP_ROWS;
}

/**
 * Product `x·Wᵀ` for the rows of prompts, of which there are many. The runtime sums in shorter blocks than in {@link productOfGroups},
 * which is five times as accurate on the log-probabilities of SmolLM2.
 */
export const productOfMany: Product = (x, weight) => matmul(x, weight, { transposeB: true });

/** Product `x·Wᵀ` for rows in whole groups. */
export const productOfGroups: Product = (x, weight) => {
  const columns = transpose(reshape(x, ["groups", GROUP_ROWS, itemAt(x.shape, 1)]), [0, 2, 1]);
  return reshape(transpose(productOfEach(weight, columns), [0, 2, 1]), [first(x.shape), first(weight.shape)]);
};

/** Returns the shape of a parameter's graph input: `[out, in]` for the matrices of a large model. */
export function originalShape(config: ModelConfig, { kind, shape }: Parameter): readonly number[] {
  return kind === "matrix" && isLarge(config) ? shape.toReversed() : shape;
}

/** Declares one graph input per parameter of a model. */
export function originalWeights(graph: Graph, config: ModelConfig): Map<string, Value> {
  return new Map(baseLayout(config).parameters.map((each) => [each.name, graph.input(each.name, originalShape(config, each))]));
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
