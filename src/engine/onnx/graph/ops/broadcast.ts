/** Broadcasting and summation. Each is the gradient of the other, so both are in this file. */
import { ShapeError } from "../../../../base/errors.ts";
import { type Dim, formatShape, sameShape, type Value } from "../graph.ts";
import { reshape } from "./shape.ts";

/**
 * Broadcasts `x`, of any type, to `shape`. Shapes are aligned at the last dimension, as in NumPy; missing dimensions of `x` count as 1.
 * The gradient is summed over the axes that grow.
 *
 * @throws ShapeError `E_SHAPE` if `x` does not broadcast to `shape` by the rule of {@link broadcastShapes}.
 */
export function expandTo(x: Value, shape: readonly Dim[]): Value {
  if (sameShape(x.shape, shape)) return x;
  const missing = shape.length - x.shape.length;
  if (missing < 0 || x.shape.some((dim, i) => dim !== 1 && dim !== shape[missing + i]))
    throw new ShapeError(`Expected a shape that broadcasts to ${formatShape(shape)}, got ${formatShape(x.shape)}`);
  const padded = reshape(x, [...Array.from({ length: missing }, () => 1), ...x.shape]);
  // Axes of `shape`, which has the rank of `padded`.
  const grownAxes = shape.flatMap((dim, i) => (padded.shape[i] === 1 && dim !== 1 ? [i] : []));
  return x.graph.recordOne({
    op: "Expand",
    inputs: [padded, x.graph.shapeVector(shape)],
    output: { shape, dtype: x.dtype },
    // No gradient for the second input, the shape.
    vjp: (g) => [reduceSum(g, grownAxes), null],
  });
}

/** Sums a float32 value over `axes`, which are kept as dimensions of size 1. */
export function reduceSum(x: Value, axes: readonly number[]): Value {
  const shape = x.shape.map((dim, i) => (axes.includes(i) ? 1 : dim));
  return x.graph.recordOne({
    op: "ReduceSum",
    inputs: [x, x.graph.ints(axes)],
    attributes: { keepdims: { int: 1 } },
    output: { shape },
    // No gradient for the second input, the axes.
    vjp: (g) => [expandTo(g, x.shape), null],
  });
}

/**
 * Returns the shape of `a op b` under NumPy broadcasting. A named dimension broadcasts only with itself or 1.
 *
 * @throws ShapeError `E_SHAPE` if the shapes do not broadcast.
 */
export function broadcastShapes(a: readonly Dim[], b: readonly Dim[]): Dim[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, i) => {
    const x = a[i - rank + a.length] ?? 1;
    const y = b[i - rank + b.length] ?? 1;
    if (x === y || y === 1) return x;
    if (x === 1) return y;
    throw new ShapeError(`Expected shapes that broadcast, got ${formatShape(a)} and ${formatShape(b)}`);
  });
}

/**
 * Returns the gradient of `like`, an operand that an op broadcast to the shape of `gradient`: the sum over the axes that broadcasting
 * prepended or enlarged.
 */
export function unbroadcast(gradient: Value, like: Value): Value {
  if (sameShape(gradient.shape, like.shape)) return gradient;
  const extra = gradient.shape.length - like.shape.length;
  const axes = gradient.shape.flatMap((dim, i) => (i < extra || (like.shape[i - extra] === 1 && dim !== 1) ? [i] : []));
  return reshape(reduceSum(gradient, axes), like.shape);
}
