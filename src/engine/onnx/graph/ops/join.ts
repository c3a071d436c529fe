/** Concatenation and splitting along an axis. Each is the gradient of the other. */
import { ShapeError } from "../../../../errors.ts";
import { type Dim, formatShape, type Value } from "../graph.ts";
import { expandTo } from "./broadcast.ts";

/** Concatenates values along `axis`. @param size - Sum of their sizes along `axis`. */
export function concat(values: readonly Value[], axis: number, size: Dim): Value {
  const first = values[0];
  if (!first) throw new ShapeError("Expected at least one value to join, got none");
  const sizes = values.map((value) => value.shape[axis]!);
  return first.graph.record({
    op: "Concat",
    inputs: values,
    attributes: { axis: { int: axis } },
    outputs: [{ shape: first.shape.map((dim, i) => (i === axis ? size : dim)), dtype: first.dtype }],
    vjp: ([g]) => split(g!, axis, sizes),
  })[0]!;
}

/** Returns the block-diagonal matrix of the blocks, `[Σ rows, Σ columns]`. */
export function blockDiagonal(blocks: readonly Value[]): Value {
  const [first] = blocks;
  if (!first) throw new ShapeError("Expected at least one matrix, got none");
  if (blocks.length === 1) return first;
  const [heights, widths] = [blocks.map(({ shape }) => shape[0] as number), blocks.map(({ shape }) => shape[1] as number)];
  const sum = (sizes: readonly number[]) => sizes.reduce((total, size) => total + size, 0);
  const lines = blocks.map((block, i) => {
    const zeros = (width: number) => (width === 0 ? [] : [expandTo(first.graph.scalar(0), [heights[i]!, width])]);
    return concat([...zeros(sum(widths.slice(0, i))), block, ...zeros(sum(widths.slice(i + 1)))], 1, sum(widths));
  });
  return concat(lines, 0, sum(heights));
}

/** Splits `x` along `axis` into pieces of the given sizes. */
export function split(x: Value, axis: number, sizes: readonly Dim[]): Value[] {
  const total = x.shape[axis]!;
  if (sizes.every((size) => typeof size === "number") && typeof total === "number" && sizes.reduce((a, b) => a + b, 0) !== total) {
    throw new ShapeError(`Expected sizes that add up to ${total}, got ${sizes.join(" + ")} for ${formatShape(x.shape)}`);
  }
  const pieces = x.graph.record({
    op: "Split",
    inputs: [x, x.graph.shapeVector(sizes)],
    attributes: { axis: { int: axis } },
    outputs: sizes.map((size) => ({ shape: x.shape.map((dim, i) => (i === axis ? size : dim)), dtype: x.dtype })),
    vjp: (gradients) => {
      const parts = gradients.map((g, i) => g ?? expandTo(x.graph.scalar(0), pieces[i]!.shape));
      return [concat(parts, axis, total), null];
    },
  });
  return pieces;
}
