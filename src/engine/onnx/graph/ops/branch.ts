/** Choice between two parts of a graph at run time. */
import type { Graph, OutputSpec, Value } from "../graph.ts";

/**
 * Runs one of two bodies and returns its results. Has no gradient.
 *
 * The bodies run as they are on every device: their operators are not lowered. They read values of the surrounding graph with
 * {@link Graph.capture}.
 *
 * @param condition - Whether the first body runs, a boolean `[1]`.
 * @param bodies - Functions that build a body and return its results, each the result of a node of the body. Results of the two bodies have
 *   equal types; their shapes may differ.
 * @param outputs - Types and shapes of the results; a dimension that differs between the bodies has a name of its own.
 * @source https://onnx.ai/onnx/operators/onnx__If.html
 */
export function branch(
  condition: Value,
  bodies: readonly [(body: Graph) => readonly Value[], (body: Graph) => readonly Value[]],
  outputs: readonly OutputSpec[],
): Value[] {
  const { graph } = condition;
  const [chosen, other] = bodies.map((build) => {
    const body = graph.body();
    for (const result of build(body)) body.output(result.name, result);
    return body;
  }) as [Graph, Graph];
  return graph.record({
    op: "If",
    inputs: [condition, ...chosen.captured.values(), ...other.captured.values()],
    attributes: { then_branch: { body: chosen }, else_branch: { body: other } },
    outputs,
  });
}
