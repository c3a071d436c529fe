/**
 * Order of execution. The runtime orders nodes by their dependencies alone. To compute a value after others, its shape is made to depend on
 * theirs.
 */
import { ShapeError } from "../../../../base/errors.ts";
import { formatShape, type Value } from "../graph.ts";
import { div, maximum } from "./elementwise.ts";

/**
 * Returns `x`, which is not available before `others`: its shape is computed from theirs. Copies nothing except one row of each of
 * `others`. The runtime cannot merge a computation on the result with the same computation on `x`.
 *
 * @param x - The first dimension is named; no dimension is 0.
 * @param others - At least one value, each with at least one dimension, none of them 0.
 * @throws ShapeError `E_SHAPE` if the first dimension of `x` is not named.
 */
export function after(x: Value, others: readonly Value[]): Value {
  const { graph } = x;
  if (typeof x.shape[0] !== "string") throw new ShapeError(`Expected a first dimension with a name, got ${formatShape(x.shape)}`);
  const size = sizeOf(x, 1);
  const one = div(size, size);
  const ones = others.map((other) => sizeOf(firstRow(other, one), 1));
  // The maximum with 1 changes no size. Not a Concat: if only one of its parts is unknown, the runtime replaces the part by -1, which
  // Reshape infers.
  const shape = ones.reduce((a, b) => maximum(a, b), sizeOf(x, x.shape.length));
  return graph.recordOne({ op: "Reshape", inputs: [x, shape], output: { shape: x.shape, dtype: x.dtype }, vjp: (g) => [g, null] });
}

/** Returns the run-time sizes of the first `count` dimensions, as an int64 vector. */
function sizeOf(x: Value, count: number): Value {
  return x.graph.recordOne({
    op: "Shape",
    inputs: [x],
    attributes: { start: { int: 0 }, end: { int: count } },
    output: { shape: [count], dtype: "int64" },
  });
}

/**
 * Returns the first row of `x`.
 *
 * @param one - The number 1, computed at run time. With a constant, the runtime would derive the shape of the row while it compiles the
 *   graph, and with the shape of `x` it would replace the row by any value of equal shape; both would drop the dependency.
 */
function firstRow(x: Value, one: Value): Value {
  const { graph } = x;
  return graph.recordOne({
    op: "Slice",
    inputs: [x, graph.ints([0]), one, graph.ints([0])],
    output: { shape: ["first_row", ...x.shape.slice(1)], dtype: x.dtype },
  });
}
