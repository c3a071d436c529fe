/** Replacement of operators that an execution provider lacks, before a graph is serialized. */
import { Graph, liveNodes, type Node, type Value } from "./graph.ts";
import { cast } from "./ops/elementwise.ts";

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

/** Name of the flat input. */
export const PACKED_INPUT = "packed";

/** Returns the names of the int64 inputs with the start, the end and the shape of a packed input. */
export const packedNames = (name: string) => ({ start: `${name}_start`, end: `${name}_end`, shape: `${name}_shape` });

/**
 * Returns a graph with the same outputs in which the operators of `table` are replaced; gradients are not copied.
 *
 * @param packed - Inputs that the new graph takes as one flat float32 input, {@link PACKED_INPUT}, because each input costs a transfer to a
 *   device. Their places and shapes are inputs, too, see {@link packedNames}. Integers, exact below 2^24, become int32, so their nodes must
 *   accept that. @default none
 */
export function lower(graph: Graph, table: LoweringTable, packed: readonly string[] = []): Graph {
  const lowered = new Graph();
  for (const dim of graph.smallDims) lowered.smallDims.add(dim);
  const isPacked = new Set(packed);
  const flat = packed.length === 0 ? null : lowered.input(PACKED_INPUT, ["packed_size"]);
  const inputOf = (input: Value): Value =>
    flat !== null && isPacked.has(input.name) ? unpacked(flat, input) : lowered.input(input.name, input.shape, input.dtype);
  const nodes = liveNodes(graph);
  const used = new Set<Value>([...nodes.flatMap((node) => node.inputs), ...graph.outputs.values()]);
  const values = new Map<Value, Value>(graph.inputs.map((input) => [input, inputOf(input)]));
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
  for (const [name, value] of graph.outputs) {
    if (graph.directNames.get(value) === name) lowered.directOutput(name, valueOf(value));
    else lowered.output(name, valueOf(value));
  }
  return lowered;
}

/** Cuts an input out of the flat input. */
function unpacked(flat: Value, { name, shape, dtype }: Value): Value {
  const { graph } = flat;
  const names = packedNames(name);
  const bound = (of: string) => graph.input(of, [1], "int64");
  const [part] = graph.record({
    op: "Slice",
    inputs: [flat, bound(names.start), bound(names.end), graph.ints([0])],
    outputs: [{ shape: [`${name}_size`] }],
  });
  const [whole] = graph.record({
    op: "Reshape",
    inputs: [part!, graph.input(names.shape, [shape.length], "int64")],
    outputs: [{ shape }],
  });
  return dtype === "float32" ? whole! : cast(whole!, "int32");
}
