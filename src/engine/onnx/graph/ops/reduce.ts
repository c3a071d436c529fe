/** Reductions and cumulative sums; the sum over some axes is in broadcast.ts. */
import type { Value } from "../graph.ts";
import { reduceSum } from "./broadcast.ts";
import { reshape } from "./shape.ts";

/** Sums all elements to a scalar. */
export function sumAll(x: Value): Value {
  if (x.shape.length === 0) return x;
  const axes = x.shape.map((_, i) => i);
  return reshape(reduceSum(x, axes), []);
}

/** Returns the maximum over `axes`, which are kept as dimensions of size 1. Has no gradient. */
export function reduceMax(x: Value, axes: readonly number[]): Value {
  return x.graph.recordOne({
    op: "ReduceMax",
    inputs: [x, x.graph.ints(axes)],
    attributes: { keepdims: { int: 1 } },
    output: { shape: x.shape.map((dim, i) => (axes.includes(i) ? 1 : dim)) },
  });
}

/** Returns the sums `y[i] = x[0] + … + x[i]` along `axis`. Has no gradient. */
export function cumulativeSum(x: Value, axis: number): Value {
  return x.graph.recordOne({ op: "CumSum", inputs: [x, x.graph.ints([axis])], output: { shape: x.shape } });
}
