/** Reductions other than the sum over axes, which is in broadcast.ts. */
import type { Value } from "../graph.ts";
import { expandTo, reduceSum } from "./broadcast.ts";
import { div } from "./elementwise.ts";
import { reshape } from "./shape.ts";

/** Computes the mean over the last axis, which is kept as a dimension of size 1. */
export function reduceMeanLast(x: Value): Value {
  const axis = x.shape.length - 1;
  const size = x.shape[axis];
  return x.graph.record({
    op: "ReduceMean",
    inputs: [x, x.graph.ints([axis])],
    attributes: { keepdims: { int: 1 } },
    outputs: [{ shape: [...x.shape.slice(0, -1), 1] }],
    vjp: ([g]) => {
      if (typeof size !== "number") throw new TypeError("the mean over a named dimension has no gradient in this catalogue");
      return [expandTo(div(g!, x.graph.scalar(size)), x.shape), null];
    },
  })[0]!;
}

/** Sums all elements to a scalar. */
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
