/** Replacement of operators that an execution provider lacks, before a graph is serialized. */
import { Graph, liveNodes, type Node, type Value } from "./graph.ts";

/**
 * Records nodes that compute the same as `node` and returns their outputs, one per output of `node`; null keeps the node.
 *
 * @param node - Node to replace, of the original graph.
 * @param inputs - Inputs of the node in the new graph.
 * @param isUsed - Whether an output of the node is an input of another node or an output of the graph.
 */
export type Lowering = (node: Node, inputs: readonly Value[], isUsed: (output: number) => boolean) => readonly Value[] | null;

/** Lowerings by operator, with the domain in front for operators outside the standard one, such as `com.microsoft.FusedMatMul`. */
export type LoweringTable = Readonly<Record<string, Lowering>>;

/** Returns a graph with the same inputs and outputs in which the operators of `table` are replaced; gradients are not copied. */
export function lower(graph: Graph, table: LoweringTable): Graph {
  const lowered = new Graph();
  const nodes = liveNodes(graph);
  const used = new Set<Value>([...nodes.flatMap((node) => node.inputs), ...graph.outputs.values()]);
  const values = new Map<Value, Value>(graph.inputs.map((input) => [input, lowered.input(input.name, input.shape, input.dtype)]));
  const valueOf = (value: Value): Value => {
    let known = values.get(value);
    if (known === undefined) {
      const data = graph.constants.get(value);
      if (data === undefined) known = lowered.absent();
      else known = data instanceof Float32Array ? lowered.constant(data, value.shape as number[]) : lowered.ints(Array.from(data, Number));
      values.set(value, known);
    }
    return known;
  };
  for (const node of nodes) {
    const { op, domain, attributes, outputs: originals } = node;
    const inputs = node.inputs.map(valueOf);
    const lowering = table[domain === "" ? op : `${domain}.${op}`];
    const outputs =
      lowering?.(node, inputs, (output) => used.has(originals[output]!)) ??
      lowered.record({ op, domain, inputs, attributes, outputs: originals });
    originals.forEach((output, i) => values.set(output, outputs[i]!));
  }
  for (const [name, value] of graph.outputs) lowered.output(name, valueOf(value));
  return lowered;
}
