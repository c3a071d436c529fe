/** Peak memory of training steps: `memory-engine.ts <file with MemoryInput as JSON>`. */
import { DeviceBases } from "../../src/engine/onnx/model/device-bases.ts";
import { webgpu } from "../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory, type DeviceTensor } from "../../src/engine/onnx/runtime/device-memory.ts";
import { positionsNeeded } from "../../src/engine/onnx/train/batch.ts";
import { DeviceTrainer } from "../../src/engine/onnx/train/device-trainer.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import type { MemoryInput, MemoryResult } from "./memory.bench.ts";
import { startHelper } from "../support/start-helper.ts";
import { variantInput } from "./support.ts";

/** Memory of a device that records its peak. */
class WatchedMemory extends DeviceMemory {
  /** Largest number of bytes that were held at once. */
  peakBytes = 0;

  override adopt(...args: Parameters<DeviceMemory["adopt"]>): DeviceTensor {
    const tensor = super.adopt(...args);
    this.peakBytes = Math.max(this.peakBytes, this.bytes);
    return tensor;
  }
}

const input = variantInput<MemoryInput>();
const memory = input.device === "webgpu" ? new WatchedMemory(webgpu()) : null;
const trainer =
  memory === null
    ? new Trainer({ threads: input.threads, startHelper })
    : new DeviceTrainer(memory, new DeviceBases(memory, positionsNeeded));
const lora = input.rank === null ? undefined : { rank: input.rank };
const id = await trainer.createModel({ id: "bench", directory: input.directory }, { seed: 1, fresh: input.fresh, lora });
const weight = 1 / (input.rows * (input.tokens - 1));
const rows = Array.from({ length: input.rows }, (_, row) => ({
  tokens: Int32Array.from({ length: input.tokens }, (__, t) => (row * 31 + t * 17 + ((row * t) % 7)) % 500),
  weights: new Float32Array(input.tokens).fill(weight, 1),
}));
const loadedMb = process.memoryUsage().rss / 1e6;
const loadPeakMb = peakMb();
const loadedBytes = memory?.bytes ?? 0;
for (let step = 0; step < input.steps; step++) {
  await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, new AbortController().signal);
  await trainer.optimStep(id, { learningRate: 1e-3, weightDecay: 0.01, maxGradNorm: 1 });
}
const tensors = memory === null ? null : { loadedMb: loadedBytes / 1e6, trainedMb: memory.bytes / 1e6, peakMb: memory.peakBytes / 1e6 };
console.log(JSON.stringify({ loadedMb, loadPeakMb, peakMb: peakMb(), tensors } satisfies MemoryResult));
// Sessions of the device keep the process alive.
process.exit(0);

/** Returns the kernel's high-water mark, which is in kibibytes. */
function peakMb(): number {
  return (process.resourceUsage().maxRSS * 1024) / 1e6;
}
