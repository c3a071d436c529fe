/**
 * Products of large models. The runtime rearranges the right operand of a product before it multiplies, and with few rows that
 * takes longer than the product itself: reading 35 M weights and multiplying 2 rows by them took 15 ms, 9 of which went into it.
 * So weights of large models are kept as files have them, `[out, in]`, and come from the left: `yᵀ = W·xᵀ`. Small models stay in
 * the processor's caches, where the transpositions of rows cost what is saved.
 */
import { type Graph, matmul, productOfEach, reshape, transpose, type Value } from "../graph/index.ts";
import type { ModelConfig } from "../model/config.ts";
import { baseLayout, type Layout, type Parameter, viewOf } from "../model/parameters.ts";
import { isLarge } from "../model/size.ts";
import type { Product } from "../model/transformer.ts";

/**
 * Rows that are multiplied together. How a product is summed depends on the columns of the right operand, so there are always as
 * many, and a row's bits are the same whatever runs beside it. As many as fill a register: fewer would cost the same.
 */
export const GROUP_ROWS = 16;

/** The least multiple of {@link GROUP_ROWS} that holds `rows`. */
export function inGroups(rows: number): number {
  return Math.ceil(rows / GROUP_ROWS) * GROUP_ROWS;
}

/** `x·Wᵀ` for rows of prompts, of which there are many. */
export const productOfMany: Product = (x, weight) => matmul(x, weight, { transposeB: true });

/** `x·Wᵀ` for rows in whole groups. */
export const productOfGroups: Product = (x, weight) => {
  const [rows, inputSize] = x.shape;
  const columns = transpose(reshape(x, ["groups", GROUP_ROWS, inputSize!]), [0, 2, 1]);
  return reshape(transpose(productOfEach(weight, columns), [0, 2, 1]), [rows!, weight.shape[0]!]);
};

/** The shape that a parameter is given in. */
export function givenShape(config: ModelConfig, { kind, shape }: Parameter): readonly number[] {
  return kind === "matrix" && isLarge(config) ? shape.toReversed() : shape;
}

/** Declares one graph input per parameter of a model. */
export function givenWeights(graph: Graph, config: ModelConfig): Map<string, Value> {
  return new Map(baseLayout(config).parameters.map((each) => [each.name, graph.input(each.name, givenShape(config, each))]));
}

/** Turns every matrix of a flat vector from `[in, out]` to `[out, in]` where it lies. */
export function turnMatrices(flat: Float32Array, layout: Layout): void {
  for (const parameter of layout.parameters) {
    if (parameter.kind !== "matrix") continue;
    const view = viewOf(flat, parameter);
    turn(view.slice(), view, parameter.shape[0]!, parameter.shape[1]!);
  }
}

/** Side of the squares that are turned one after the other: their lines stay in the cache. */
const SQUARE = 32;

function turn(from: Float32Array, to: Float32Array, rows: number, columns: number): void {
  for (let top = 0; top < rows; top += SQUARE) {
    const bottom = Math.min(rows, top + SQUARE);
    for (let left = 0; left < columns; left += SQUARE) {
      const right = Math.min(columns, left + SQUARE);
      for (let row = top; row < bottom; row++)
        for (let column = left; column < right; column++) to[column * rows + row] = from[row * columns + column]!;
    }
  }
}
