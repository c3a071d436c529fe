/** Repeated execution of a part of a graph. */
import type { Dim, Graph, Value } from "../graph.ts";
import { first } from "../../../../base/util/values.ts";

/**
 * Runs a body once for each element of the first axis of the inputs, and stacks its results along a new first axis. Has no gradient.
 *
 * The body runs as it is on every device: its operators are not lowered. It reads values of the surrounding graph with
 * {@link Graph.capture}.
 *
 * @param inputs - Values with the same first dimension.
 * @param build - Builds the body and returns its results: `elements` are the inputs without their first dimension.
 * @source https://onnx.ai/onnx/operators/onnx__Scan.html
 */
export function scan(inputs: readonly Value[], build: (body: Graph, elements: readonly Value[]) => readonly Value[]): Value[] {
  const { graph } = first(inputs);
  const body = graph.body();
  const elements = inputs.map(({ shape, dtype }, index) => body.input(body.nameOf(`element${index}`), shape.slice(1), dtype));
  const results = build(body, elements);
  results.forEach((result, index) => body.output(body.nameOf(`result${index}`), result));
  const count = first(inputs).shape[0] as Dim;
  return graph.record({
    op: "Scan",
    inputs: [...inputs, ...body.captured.values()],
    attributes: { body: { body }, num_scan_inputs: { int: inputs.length } },
    outputs: results.map(({ shape, dtype }) => ({ shape: [count, ...shape], dtype })),
  });
}
