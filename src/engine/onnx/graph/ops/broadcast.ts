/** Broadcasting and summation. Each is the gradient of the other, so both are in this file. */
import { ShapeError } from "../../../../base/errors.ts";
import { type Dim, formatShape, sameShape, type Value } from "../graph.ts";
import { reshape } from "./shape.ts";

/** Broadcasts `x` to `shape`. */
export function expandTo(x: Value, shape: readonly Dim[]): Value {
  if (sameShape(x.shape, shape)) return x;
  const padded = reshape(x, [...Array.from({ length: shape.length - x.shape.length }, () => 1), ...x.shape]);
  const axes = shape.flatMap((dim, i) => (padded.shape[i] === 1 && dim !== 1 ? [i] : []));
  return x.graph.recordOne({
    op: "Expand",
    inputs: [padded, x.graph.shapeVector(shape)],
    output: { shape, dtype: x.dtype },
    vjp: (g) => [reduceSum(g, axes), null],
  });
}

/** Sums over `axes`, which are kept as dimensions of size 1. */
export function reduceSum(x: Value, axes: readonly number[]): Value {
  const shape = x.shape.map((dim, i) => (axes.includes(i) ? 1 : dim));
  return x.graph.recordOne({
    op: "ReduceSum",
    inputs: [x, x.graph.ints(axes)],
    attributes: { keepdims: { int: 1 } },
    output: { shape },
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

/** Sums `gradient` to the shape of `like`, which is the adjoint of broadcasting. */
export function unbroadcast(gradient: Value, like: Value): Value {
  if (sameShape(gradient.shape, like.shape)) return gradient;
  const extra = gradient.shape.length - like.shape.length;
  const axes = gradient.shape.flatMap((dim, i) => (i < extra || (like.shape[i - extra] === 1 && dim !== 1) ? [i] : []));
  return reshape(reduceSum(gradient, axes), like.shape);
}
