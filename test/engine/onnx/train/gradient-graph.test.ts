/** Products of adapters in a gradient graph; `test/engine/device` has their results. */
import { expect, test } from "vitest";
import { liveNodes } from "../../../../src/engine/onnx/graph/graph.ts";
import { parseModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { gradientGraph } from "../../../../src/engine/onnx/train/gradient-graph.ts";

/** Returns the shapes of the matrices that are joined with adapters of rank 16, in a model of one layer. */
function joinedMatrices(hiddenSize: number, innerSize: number, joinsAdapters: boolean): string[] {
  const config = parseModelConfig(
    {
      architectures: ["LlamaForCausalLM"],
      vocab_size: 256,
      max_position_embeddings: 64,
      hidden_size: hiddenSize,
      intermediate_size: innerSize,
      num_hidden_layers: 1,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      tie_word_embeddings: true,
    },
    "config.json",
  );
  const shape = { prompts: null, packedRows: { count: 1, recompute: false } };
  const graph = gradientGraph(config, "cross-entropy", 16, shape, { mergesAdapters: false, joinsAdapters });
  const matrices = new Set(graph.inputs.filter(({ name }) => /_(?:gate|up|down)$/u.test(name)));
  return liveNodes(graph)
    .filter(({ op, inputs: [matrix] }) => op === "Concat" && matrix !== undefined && matrices.has(matrix))
    .map(({ inputs: [matrix], outputs: [joined] }) => `${matrix!.name} ${joined!.shape.join(" × ")}`)
    .toSorted();
}

test("adapters are joined with the matrices whose sums are at least twice as long as their results", () => {
  expect(joinedMatrices(64, 256, true)).toEqual(["layer0_down 256 × 80", "layer0_gate 80 × 256", "layer0_up 80 × 256"]);
  expect(joinedMatrices(64, 120, true)).toEqual([]);
  expect(joinedMatrices(64, 256, false)).toEqual([]);
});

test("adapters are not joined with matrices that would exceed 128 MiB", () => {
  expect(joinedMatrices(4096, 8192, true)).toEqual([]);
  expect(joinedMatrices(4080, 8160, true)).toHaveLength(3);
});
