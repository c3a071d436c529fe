/**
 * Kept activations: the values of the forward pass that the backward pass reads. As outputs of a gradient graph, they are written to
 * buffers that the caller reuses from run to run. Otherwise the runtime would free them after every run and allocate gigabytes anew.
 */
import { dimSizes, type InputShapes, sizedShape } from "../graph/dim-sizes.ts";
import type { Graph } from "../graph/index.ts";
import { keptValues } from "../graph/kept-values.ts";

/** Name prefix of the outputs with kept activations. */
const KEPT = "kept_";

/** Declares the kept activations of a graph as outputs. @param count - Number of nodes of the forward pass, which are recorded first. */
export function outputKept(graph: Graph, count: number): void {
  for (const [index, value] of keptValues(graph, count).entries()) graph.directOutput(`${KEPT}${index}`, value);
}

/** Returns a function from the inputs of a run to the shapes of the kept activations, except those that the inputs do not determine. */
export function keptShapes(graph: Graph): (inputs: InputShapes) => ReadonlyMap<string, readonly number[]> {
  const kept = [...graph.outputs].filter(([name]) => name.startsWith(KEPT)).map(([name, { shape }]) => ({ name, shape }));
  const sizesOf = dimSizes(graph);
  return (inputs) => {
    const sizes = sizesOf(inputs);
    const shapes = new Map<string, readonly number[]>();
    for (const { name, shape } of kept) {
      const dims = sizedShape(shape, sizes);
      if (dims !== null) shapes.set(name, dims);
    }
    return shapes;
  };
}
