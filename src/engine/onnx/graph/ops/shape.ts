/** Ops that rearrange elements without changing them. Their gradients are the inverse rearrangements. */
import { type Dim, sameShape, type Value } from "../graph.ts";
import { itemAt } from "../../../../base/util/values.ts";

/**
 * Reshapes `x`. Named dimensions at the same axis are copied, and one more named dimension is inferred. With further named dimensions,
 * all sizes are read at run time.
 */
export function reshape(x: Value, shape: readonly Dim[]): Value {
  if (sameShape(x.shape, shape)) return x;
  // In ONNX, 0 copies a dimension of the input and -1 infers one.
  const codes = shape.map((dim, i) => (typeof dim === "number" ? dim : dim === x.shape[i] ? 0 : -1));
  const target = codes.filter((code) => code === -1).length <= 1 ? x.graph.ints(codes) : x.graph.shapeVector(shape);
  return x.graph.recordOne({
    op: "Reshape",
    inputs: [x, target],
    output: { shape, dtype: x.dtype },
    vjp: (g) => [reshape(g, x.shape), null],
  });
}

/** Permutes dimensions: dimension `i` of the result is dimension `permutation[i]` of `x`. */
export function transpose(x: Value, permutation: readonly number[]): Value {
  const inverse = permutation.map((_, i) => permutation.indexOf(i));
  return x.graph.recordOne({
    op: "Transpose",
    inputs: [x],
    attributes: { perm: { ints: permutation } },
    output: { shape: permutation.map((axis) => itemAt(x.shape, axis)), dtype: x.dtype },
    vjp: (g) => [transpose(g, inverse)],
  });
}

/** Appends `value` to the last dimension, a fixed one, until it has `size` elements. Has no gradient. */
export function padLast(x: Value, size: number, value: number): Value {
  const { graph, shape } = x;
  const missing = size - (shape.at(-1) as number);
  if (missing === 0) return x;
  const zeros = shape.map(() => 0);
  return graph.recordOne({
    op: "Pad",
    inputs: [x, graph.ints([...zeros, ...zeros.slice(1), missing]), graph.scalar(value)],
    output: { shape: [...shape.slice(0, -1), size], dtype: x.dtype },
  });
}
