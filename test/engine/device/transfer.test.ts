import { expect, test } from "vitest";
import type { Row } from "../../../src/engine/index.ts";
import { parseModelConfig } from "../../../src/engine/onnx/model/config.ts";
import { adapterLayout } from "../../../src/engine/onnx/model/parameters.ts";
import { countParameters } from "../../../src/engine/onnx/model/transformer.ts";
import { loadRuntime } from "../../../src/engine/onnx/runtime/program.ts";
import { batchInputs, selectAndPlan } from "../../../src/engine/onnx/train/batch-inputs.ts";
import { deviceBatchLimits, planBatches } from "../../../src/engine/onnx/train/batch.ts";
import { groupsOf } from "../../../src/engine/onnx/train/device-optimizer.ts";
import { deviceBudget } from "../../../src/engine/onnx/train/memory-plan.ts";

/** Shape of 27 M parameters. */
const config = parseModelConfig(
  {
    architectures: ["LlamaForCausalLM"],
    vocab_size: 16_384,
    max_position_embeddings: 1024,
    hidden_size: 384,
    intermediate_size: 1280,
    num_hidden_layers: 11,
    num_attention_heads: 6,
    num_key_value_heads: 2,
    tie_word_embeddings: true,
  },
  "config.json",
);

/** Bytes of the optimizer's scalars for one group of tensors. */
const SCALAR_BYTES = 9 * 4;

test.each([0, 128])("a step of 64 rows of 256 tokens that share %i transfers at most 3 MB", async (shared) => {
  const { Tensor } = await loadRuntime();
  expect(countParameters(config) / 1e6).toBeCloseTo(27, 0);
  const rows = Array.from({ length: 64 }, (_, r): Row => {
    const tokenAt = (t: number) => (t < shared ? t + 300 * Math.floor(r / 8) : (t * 31 + r * 17) % 8000);
    return {
      tokens: Int32Array.from({ length: 256 }, (_, t) => tokenAt(t)),
      weights: Float32Array.from({ length: 256 }, (_, t) => Number(t >= Math.max(1, shared))),
      logprobs: new Float32Array(256),
      advantages: new Float32Array(256),
    };
  });
  const loss = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2 } as const;
  let bytes = SCALAR_BYTES * groupsOf(adapterLayout(config, 16)).length;
  for (const batch of planBatches(rows, deviceBatchLimits(config, deviceBudget()))) {
    const { selection, plan } = selectAndPlan(config, rows, batch, { minEntries: 2, entryStep: 8 })!;
    const inputs = batchInputs(
      Tensor,
      { config, lora: { rank: 16, alpha: 32 } },
      { rows, batch, selection, slices: plan.headSlices, loss, masks: "ranges" },
    );
    for (const { data } of Object.values(inputs)) bytes += (data as Float32Array).byteLength;
    // Log-probabilities, entropies and the loss.
    bytes += 8 * selection.selected.length + 4;
  }
  expect(bytes).toBeLessThan(3e6);
});
