/** Values that the backward pass computes again instead of keeping them. */
import { keptValues } from "./kept-values.ts";
import type { Graph, Node, Value } from "./graph.ts";
import { after } from "./ops/order.ts";
import { first, getOrThrow } from "../../../base/util/values.ts";

/** Operators with a result that takes little time to compute from kept values. */
const CHEAP: ReadonlySet<string> = new Set(["Concat", "SimplifiedLayerNormalization"]);
/** Operators between a cheap one and the values that it is computed from. */
const REARRANGING: ReadonlySet<string> = new Set(["Concat", "Identity", "Reshape", "Transpose"]);

/**
 * Makes later nodes compute cheap results of the first `count` recorded nodes again, if these are computed from values that are kept anyway:
 * normalized rows, and rows that are joined from several blocks. A kept value is in memory from the forward pass to the backward pass of
 * its layer. The bits are the same.
 *
 * A value is computed again after another operand of the first node that reads it, see {@link after}. Only values whose first dimension has
 * a name are replaced.
 */
export function recomputeCheap(graph: Graph, count: number): void {
  const forward = graph.nodes.slice(0, count);
  const producers = new Map<Value, Node>(forward.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
  const kept = new Set(keptValues(graph, count));
  const isCheap = (value: Value): boolean => {
    const node = producers.get(value);
    return node?.outputs[0] === value && CHEAP.has(node.op) && isActivation(value) && isFrom(node, kept, producers);
  };
  const replaced = new Set([...kept].filter(isCheap));
  const later = graph.nodes.splice(count);
  const copies = new Map<Value, Value>();
  const available = new Set<Value>([...producers.keys(), ...graph.inputs]);
  for (const node of later) {
    const inputs = node.inputs.map((input) => {
      if (!replaced.has(input)) return input;
      const trigger = node.inputs.find((each) => !available.has(each) && isActivation(each));
      const copy = copies.get(input) ?? (trigger && computeAgain(input, trigger, producers));
      if (copy !== undefined) copies.set(input, copy);
      return copy ?? input;
    });
    graph.nodes.push({ ...node, inputs });
  }
}

/** Whether a value belongs to the rows of a batch: its first dimension has a name. */
function isActivation({ shape }: Value): boolean {
  return typeof shape[0] === "string";
}

/** Whether the activations that a node reads, through nodes that rearrange them, are kept and not replaced themselves. */
function isFrom(node: Node, kept: ReadonlySet<Value>, producers: ReadonlyMap<Value, Node>): boolean {
  return node.inputs.filter(isActivation).every((input) => {
    if (kept.has(input) && !CHEAP.has(producers.get(input)?.op ?? "")) return true;
    const producer = producers.get(input);
    return producer !== undefined && REARRANGING.has(producer.op) && isFrom(producer, kept, producers);
  });
}

/** Records the node of a value again, and the nodes that rearrange its inputs, with the other inputs not available before `trigger`. */
function computeAgain(value: Value, trigger: Value, producers: ReadonlyMap<Value, Node>): Value {
  const node = getOrThrow(producers, value);
  const inputs = node.inputs.map((input) => {
    if (!isActivation(input)) return input;
    const producer = producers.get(input);
    const isRearranged = producer !== undefined && REARRANGING.has(producer.op);
    return isRearranged ? computeAgain(input, trigger, producers) : after(input, [trigger]);
  });
  const { op, domain, attributes, outputs } = node;
  return value.graph.recordOne({ op, domain, inputs, attributes, output: first(outputs) });
}
