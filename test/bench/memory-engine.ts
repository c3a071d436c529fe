/** Peak memory of training steps: `memory-engine.ts <file with MemoryInput as JSON>`. */
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import type { MemoryInput, MemoryResult } from "./memory.bench.ts";
import { startHelper } from "../support/start-helper.ts";
import { variantInput } from "./support.ts";

const input = variantInput<MemoryInput>();
const trainer = new Trainer({ threads: input.threads, startHelper });
const lora = input.rank === null ? undefined : { rank: input.rank };
const id = await trainer.createModel({ id: "bench", directory: input.directory }, { seed: 1, fresh: input.fresh, lora });
const weight = 1 / (input.rows * (input.tokens - 1));
const rows = Array.from({ length: input.rows }, (_, row) => ({
  tokens: Int32Array.from({ length: input.tokens }, (__, t) => (row * 31 + t * 17 + ((row * t) % 7)) % 500),
  weights: new Float32Array(input.tokens).fill(weight, 1),
}));
const loadedMb = process.memoryUsage().rss / 1e6;
const loadPeakMb = peakMb();
for (let step = 0; step < input.steps; step++) {
  await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, new AbortController().signal);
  await trainer.optimStep(id, { learningRate: 1e-3, weightDecay: 0.01, maxGradNorm: 1 });
}
console.log(JSON.stringify({ loadedMb, loadPeakMb, peakMb: peakMb() } satisfies MemoryResult));

/** Returns the kernel's high-water mark, which is in kibibytes. */
function peakMb(): number {
  return (process.resourceUsage().maxRSS * 1024) / 1e6;
}
