/** Reduction over all axes; the sum over some axes is in broadcast.ts. */
import type { Value } from "../graph.ts";
import { reduceSum } from "./broadcast.ts";
import { reshape } from "./shape.ts";

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
