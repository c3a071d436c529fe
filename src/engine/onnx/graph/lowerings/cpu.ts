/** Lowerings for the CPU execution provider of ONNX Runtime. */
import { firstInputs, type LoweringTable } from "../lower.ts";
import { expandTo } from "../ops/broadcast.ts";
import { reshape } from "../ops/shape.ts";

/** Lowerings of the device `cpu`. */
export const CPU_LOWERINGS: LoweringTable = {
  // Indices may repeat. ScatterElements adds all updates of an index with any number of threads; ScatterND loses some.
  "whetstone.ScatterAddRows": (node, inputs) => {
    const [table, indices, updates] = firstInputs(node, inputs, 3);
    const wide = expandTo(reshape(indices, [...indices.shape, 1]), updates.shape);
    return table.graph.record({
      op: "ScatterElements",
      inputs: [table, wide, updates],
      attributes: { axis: { int: 0 }, reduction: { string: "add" } },
      outputs: [{ shape: table.shape }],
    });
  },
};
