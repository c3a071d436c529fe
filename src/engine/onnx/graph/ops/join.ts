/** Concatenation and splitting along an axis. Each is the gradient of the other. */
import { ShapeError } from "../../../../base/errors.ts";
import { type Dim, formatShape, type Value } from "../graph.ts";
import { expandTo } from "./broadcast.ts";
import { itemAt } from "../../../../base/util/values.ts";

/** Concatenates values along `axis`. @param size - Sum of their sizes along `axis`. */
export function concat(values: readonly Value[], axis: number, size: Dim): Value {
  const first = values[0];
  if (!first) throw new ShapeError("Expected at least one value to join, got none");
  const sizes = values.map((value) => itemAt(value.shape, axis));
  return first.graph.recordOne({
    op: "Concat",
    inputs: values,
    attributes: { axis: { int: axis } },
    output: { shape: first.shape.map((dim, i) => (i === axis ? size : dim)), dtype: first.dtype },
    vjp: (g) => split(g, axis, sizes),
  });
}

/** Concatenates values along `axis` like {@link concat}; a single value is returned itself, without a node. */
export function join(values: readonly Value[], axis: number, size: Dim): Value {
  const [first] = values;
  return first && values.length === 1 ? first : concat(values, axis, size);
}

/** Returns the block-diagonal matrix of the blocks, `[Σ rows, Σ columns]`. */
export function blockDiagonal(blocks: readonly Value[]): Value {
  const [first] = blocks;
  if (!first) throw new ShapeError("Expected at least one matrix, got none");
  if (blocks.length === 1) return first;
  const [heights, widths] = [blocks.map(({ shape }) => shape[0] as number), blocks.map(({ shape }) => shape[1] as number)];
  const sum = (sizes: readonly number[]) => sizes.reduce((total, size) => total + size, 0);
  const lines = blocks.map((block, i) => {
    const zeros = (width: number) => (width === 0 ? [] : [expandTo(first.graph.scalar(0), [itemAt(heights, i), width])]);
    return concat([...zeros(sum(widths.slice(0, i))), block, ...zeros(sum(widths.slice(i + 1)))], 1, sum(widths));
  });
  return concat(lines, 0, sum(heights));
}

/** Tuple with one value for each size of a list. */
type Pieces<Sizes extends readonly Dim[]> = { -readonly [Index in keyof Sizes]: Value };

/** Splits `x` along `axis` into pieces of the given sizes. */
export function split<const Sizes extends readonly Dim[]>(x: Value, axis: number, sizes: Sizes): Pieces<Sizes> {
  const total = itemAt(x.shape, axis);
  const isStatic = sizes.every((size) => typeof size === "number") && typeof total === "number";
  if (isStatic && sizes.reduce<number>((sum, size) => sum + Number(size), 0) !== total) {
    throw new ShapeError(`Expected sizes that add up to ${total}, got ${sizes.join(" + ")} for ${formatShape(x.shape)}`);
  }
  const pieces = x.graph.record({
    op: "Split",
    inputs: [x, x.graph.shapeVector(sizes)],
    attributes: { axis: { int: axis } },
    outputs: sizes.map((size) => ({ shape: x.shape.map((dim, i) => (i === axis ? size : dim)), dtype: x.dtype })),
    vjp: (gradients) => {
      const parts = gradients.map((g, i) => g ?? expandTo(x.graph.scalar(0), itemAt(pieces, i).shape));
      return [concat(parts, axis, total), null];
    },
  });
  return pieces as Pieces<Sizes>;
}
