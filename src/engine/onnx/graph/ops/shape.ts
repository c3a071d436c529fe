/** Ops that move elements without changing them. Their gradients are the inverse moves. */
import { type Dim, sameShape, type Value } from "../graph.ts";

/**
 * The same elements in another shape. Named dimensions that stay in their place are copied and one more may be inferred;
 * where there are further ones, all are read from the inputs.
 */
export function reshape(x: Value, shape: readonly Dim[]): Value {
  if (sameShape(x.shape, shape)) return x;
  // The operator takes 0 for "as it was" and -1 for "what is left".
  const places = shape.map((dim, i) => (typeof dim === "number" ? dim : dim === x.shape[i] ? 0 : -1));
  const target = places.filter((place) => place === -1).length <= 1 ? x.graph.ints(places) : x.graph.shapeVector(shape);
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
