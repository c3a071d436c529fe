/** Reductions over fixed axes. */
import type { Dim, Value } from "../graph.ts";
import { div } from "./elementwise.ts";
import { expandTo, reshape } from "./shape.ts";

function keptShape(shape: readonly Dim[], axes: readonly number[]): Dim[] {
  return shape.map((dim, i) => (axes.includes(i) ? 1 : dim));
}

/** `Σ` over `axes`, which stay as dimensions of size 1. */
export function reduceSum(x: Value, axes: readonly number[]): Value {
  const shape = keptShape(x.shape, axes);
  return x.graph.record({
    op: "ReduceSum",
    inputs: [x, x.graph.ints(axes)],
    attributes: { keepdims: { int: 1 } },
    outputs: [{ shape }],
    vjp: ([g]) => [expandTo(g!, x.shape), null],
  })[0]!;
}

/** Mean over the last axis, which stays as a dimension of size 1. */
export function reduceMeanLast(x: Value): Value {
  const axis = x.shape.length - 1;
  const size = x.shape[axis];
  return x.graph.record({
    op: "ReduceMean",
    inputs: [x, x.graph.ints([axis])],
    attributes: { keepdims: { int: 1 } },
    outputs: [{ shape: keptShape(x.shape, [axis]) }],
    vjp: ([g]) => {
      if (typeof size !== "number") throw new TypeError("the mean over a named dimension has no gradient in this catalogue");
      return [expandTo(div(g!, x.graph.scalar(size)), x.shape), null];
    },
  })[0]!;
}

/** `Σ` of everything, a scalar. */
export function sumAll(x: Value): Value {
  if (x.shape.length === 0) return x;
  return reshape(
    reduceSum(
      x,
      x.shape.map((_, i) => i),
    ),
    [],
  );
}
