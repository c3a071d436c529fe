/** Ops that move elements without changing them. Their gradients are the inverse moves. */
import { ShapeError } from "../../../../errors.ts";
import { type Dim, formatShape, sameShape, type Value } from "../graph.ts";
import { reduceSum } from "./reduce.ts";

/** The same elements in another shape. One named dimension may be inferred; two or more are read from the inputs. */
export function reshape(x: Value, shape: readonly Dim[]): Value {
  if (sameShape(x.shape, shape)) return x;
  const named = shape.filter((dim) => typeof dim === "string");
  const target = named.length === 1 ? x.graph.ints(shape.map((dim) => (typeof dim === "string" ? -1 : dim))) : x.graph.shapeVector(shape);
  return x.graph.record({
    op: "Reshape",
    inputs: [x, target],
    outputs: [{ shape, dtype: x.dtype }],
    vjp: ([g]) => [reshape(g!, x.shape), null],
  })[0]!;
}

/** Dimension `i` of the result is dimension `permutation[i]` of `x`. */
export function transpose(x: Value, permutation: readonly number[]): Value {
  const inverse = permutation.map((_, i) => permutation.indexOf(i));
  return x.graph.record({
    op: "Transpose",
    inputs: [x],
    attributes: { perm: { ints: permutation } },
    outputs: [{ shape: permutation.map((axis) => x.shape[axis]!), dtype: x.dtype }],
    vjp: ([g]) => [transpose(g!, inverse)],
  })[0]!;
}

/** `x` broadcast to `shape`; dimensions of size 1 grow. */
export function expandTo(x: Value, shape: readonly Dim[]): Value {
  if (sameShape(x.shape, shape)) return x;
  const padded = reshape(x, [...Array.from({ length: shape.length - x.shape.length }, () => 1), ...x.shape]);
  const axes = shape.flatMap((dim, i) => (padded.shape[i] === 1 && dim !== 1 ? [i] : []));
  return x.graph.record({
    op: "Expand",
    inputs: [padded, x.graph.shapeVector(shape)],
    outputs: [{ shape, dtype: x.dtype }],
    vjp: ([g]) => [reduceSum(g!, axes), null],
  })[0]!;
}

/** Joins values along `axis`. `size` is the joined dimension. */
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

/** Cuts `x` along `axis` into pieces of the given sizes. */
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
