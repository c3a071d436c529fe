/** The model families on the device `webgpu`, where an adapter is installed. */
import { describe } from "vitest";
import { DeviceBases } from "../../src/engine/onnx/model/device-bases.ts";
import { webgpu } from "../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../src/engine/onnx/runtime/device-memory.ts";
import { positionsNeeded } from "../../src/engine/onnx/train/batch.ts";
import { DeviceTrainer } from "../../src/engine/onnx/train/device-trainer.ts";
import { deviceBudget } from "../../src/engine/onnx/train/memory-plan.ts";
import { missingAdapter } from "../support/adapter.ts";
import { FAMILIES, familyTests } from "../support/family-tests.ts";

describe.skipIf(missingAdapter !== null)(`families on a software adapter${missingAdapter === null ? "" : `: ${missingAdapter}`}`, () => {
  const memory = new DeviceMemory(webgpu());
  // The kept activations of small models, too, are written to reused buffers.
  const budget = { ...deviceBudget(), minPooledBytes: 1 };
  const newTrainer = () => new DeviceTrainer(memory, new DeviceBases(memory, positionsNeeded), budget);
  familyTests(FAMILIES, { device: "webgpu", newTrainer, timeoutMs: 120_000 });
});
