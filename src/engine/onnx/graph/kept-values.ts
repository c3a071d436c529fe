/** Values that one part of a graph computes and a later part reads. */
import { type Graph, liveNodes, type Node, type Value } from "./graph.ts";
import { itemAt } from "../../../base/util/values.ts";

/** Operators whose result is the memory of their first input. */
const ALIASES: ReadonlySet<string> = new Set(["Identity", "Reshape"]);

/**
 * Returns the float32 results of the first `count` recorded nodes that later nodes read, in recording order: the values that are in memory
 * when the first part ends. Of an alias, such as the result of a Reshape, the value that owns the memory is returned. Nodes that no output
 * depends on do not count.
 */
export function keptValues(graph: Graph, count: number): Value[] {
  const firstNodes = new Set(graph.nodes.slice(0, count));
  const producers = new Map<Value, Node>();
  for (const node of firstNodes) for (const output of node.outputs) producers.set(output, node);
  const ownerOf = (value: Value): Value => {
    const node = producers.get(value);
    return node !== undefined && ALIASES.has(node.op) ? ownerOf(itemAt(node.inputs, 0)) : value;
  };
  const laterNodes = liveNodes(graph).filter((node) => !firstNodes.has(node));
  const read = new Set(laterNodes.flatMap((node) => node.inputs.map(ownerOf)));
  return [...producers.keys()].filter((value) => value.dtype === "float32" && read.has(value));
}
