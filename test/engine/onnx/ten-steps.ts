/** Prints a hash of the shipped model shape's weights after ten policy-gradient steps: `ten-steps.ts <threads>`. */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { Trainer } from "../../../src/engine/onnx/train/trainer.ts";
import { startHelper } from "../../support/start-helper.ts";

const trainer = new Trainer({ threads: Number(process.argv[2]), maxBatchTokens: 512, startHelper });
const directory = join(import.meta.dirname, "../../../models/whetstone-tiny");
const id = await trainer.createModel({ id: "tiny", directory }, { seed: 1, fresh: true });
const rows = Array.from({ length: 48 }, (_, i) => {
  // Mostly short, one that fills a batch of its own, and one with attention in blocks and recomputation.
  const length = i === 5 ? 200 : i === 6 ? 560 : 20 + ((i * 7) % 25);
  // The last sixteen are two groups of rollouts, on a short and on a longer prompt.
  const shared = i < 32 ? 0 : i < 40 ? 10 : 60;
  return {
    tokens: Int32Array.from({ length: length + shared }, (__, t) =>
      t < shared ? (shared + t * 13) % 300 : (i * 31 + t * 17 + ((i * t) % 7)) % 300,
    ),
    weights: new Float32Array(length + shared).fill(1 / 500, length + shared - 12),
    advantages: new Float32Array(length + shared).fill((i % 5) - 2),
    logprobs: new Float32Array(length + shared).fill(-6),
  };
});
for (let step = 0; step < 10; step++) {
  await trainer.forwardBackward(id, rows, { kind: "ppo", epsilon: 0.2, epsilonHigh: 0.2 }, new AbortController().signal);
  await trainer.optimStep(id, { learningRate: 1e-3, maxGradNorm: 1, weightDecay: 0.01 });
}
const { flat } = trainer.weights(id);
console.log(
  createHash("sha256")
    .update(new Uint8Array(flat.buffer, 0, flat.byteLength))
    .digest("hex"),
);
