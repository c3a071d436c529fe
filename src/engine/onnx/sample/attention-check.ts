/** Check of a device's attention over many tokens. */
import { cachedAttention, Graph } from "../graph/index.ts";
import { cpu, type Device } from "../runtime/device.ts";
import { loadRuntime, Program } from "../runtime/program.ts";

/** Tokens of the check. The provider has another kernel for fewer tokens. */
const TOKENS = 32;
const HEAD_SIZE = 8;
/** Max difference from the processor. Rounding differs by less than 1e-6. */
const TOLERANCE = 1e-3;

/**
 * Returns whether a device computes the attention of {@link TOKENS} tokens as the processor does. The kernel of ONNX Runtime 1.30 for 32
 * tokens and more is wrong on SwiftShader and lavapipe, whose subgroups have 4 and 8 invocations, from the token after the first subgroup
 * on.
 */
export async function hasExactAttention(device: Device): Promise<boolean> {
  const { Tensor } = await loadRuntime();
  const width = 3 * HEAD_SIZE;
  const projected = Float32Array.from({ length: TOKENS * width }, (_, i) => Math.sin(2 * i));
  const feeds = {
    projected: new Tensor("float32", projected, [1, TOKENS, width]),
    last_places: new Tensor("int32", Int32Array.of(TOKENS - 1), [1]),
    total: new Tensor("int32", Int32Array.of(TOKENS), [1]),
  };
  const mixedOn = async (on: Device): Promise<Float32Array> => {
    const program = await Program.compile(attentionGraph(width), "check-attention", { threads: 1, device: on });
    try {
      return (await program.run(feeds, ["mixed"]))["mixed"]!.data as Float32Array;
    } finally {
      await program.release();
    }
  };
  const expected = await mixedOn(cpu);
  const actual = await mixedOn(device);
  return expected.every((value, i) => Math.abs(value - actual[i]!) < TOLERANCE);
}

function attentionGraph(width: number): Graph {
  const graph = new Graph();
  const { mixed, keys, values } = cachedAttention({
    projected: graph.input("projected", [1, "time", width]),
    past: null,
    capacity: "time",
    lastPositions: graph.input("last_places", [1], "int32"),
    total: graph.input("total", [1], "int32"),
    heads: 1,
    kvHeads: 1,
    headSize: HEAD_SIZE,
  });
  graph.output("mixed", mixed);
  graph.output("keys", keys);
  graph.output("values", values);
  return graph;
}
