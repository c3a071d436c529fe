/** Failures while a model or a policy is created on a device. The processor stands in for the device, so that the tests need no driver. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { EngineError } from "../../../src/base/errors.ts";
import { DeviceBases } from "../../../src/engine/onnx/model/device-bases.ts";
import { cpu } from "../../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../../src/engine/onnx/runtime/device-memory.ts";
import { onDevice } from "../../../src/engine/onnx/sample/device-place.ts";
import { PublishedPolicies } from "../../../src/engine/onnx/sample/policies.ts";
import { positionsNeeded } from "../../../src/engine/onnx/train/batch.ts";
import { DeviceTrainer } from "../../../src/engine/onnx/train/device-trainer.ts";

/** Memory with room for a number of tensors. */
class SmallMemory extends DeviceMemory {
  left = Infinity;

  override upload(...values: Parameters<DeviceMemory["upload"]>) {
    return this.#taken() ? super.upload(...values) : this.#full();
  }

  override zeros(shape: readonly number[]) {
    return this.#taken() ? super.zeros(shape) : this.#full();
  }

  #taken(): boolean {
    return --this.left >= 0;
  }

  #full(): Promise<never> {
    return Promise.reject(new EngineError("The device is full"));
  }
}

const base = { id: "oracle", directory: join(import.meta.dirname, "../../oracle/llama/model") };

test.each([{ lora: { rank: 2 } }, {}])("releases the memory of a model whose saved state cannot be read: %j", async (spec) => {
  const empty = await mkdtemp(join(tmpdir(), "whetstone-state-"));
  onTestFinished(() => rm(empty, { recursive: true }));
  const memory = new DeviceMemory(cpu);
  const trainer = new DeviceTrainer(memory, new DeviceBases(memory, positionsNeeded));
  await expect(trainer.createModel(base, { seed: 0, ...spec, from: empty })).rejects.toMatchObject({ code: "E_DATA" });
  expect(memory.bytes).toBe(0);
  const id = await trainer.createModel(base, { seed: 0, ...spec });
  expect(memory.bytes).toBeGreaterThan(0);
  await trainer.unload(id);
  expect(memory.bytes).toBe(0);
});

test("releases the memory of a model that the device has no room for", async () => {
  const memory = new SmallMemory(cpu);
  const trainer = new DeviceTrainer(memory, new DeviceBases(memory, positionsNeeded));
  const spec = { seed: 0, lora: { rank: 2 } };
  let room = 0;
  for (; ; room++) {
    memory.left = room;
    const id = await trainer.createModel(base, spec).catch((error: unknown) => {
      expect(error).toMatchObject({ code: "E_ENGINE" });
      expect(memory.bytes, `room for ${room} tensors`).toBe(0);
      return null;
    });
    if (id !== null) break;
  }
  expect(room).toBeGreaterThan(4);
});

test.each([{ lora: { rank: 2 } }, {}])("releases trained weights that cannot become a policy: %j", async (spec) => {
  const memory = new SmallMemory(cpu);
  const bases = () => new DeviceBases(memory, positionsNeeded);
  const trainer = new DeviceTrainer(memory, bases());
  const id = await trainer.createModel(base, { seed: 0, ...spec });
  const before = memory.bytes;
  const policies = new PublishedPolicies(onDevice(memory, bases()).weights, () => {});
  memory.left = 0;
  await expect(policies.add("full", base, trainer.weights(id))).rejects.toMatchObject({ code: "E_ENGINE" });
  memory.left = Infinity;
  const nowhere = { id: "nowhere", directory: "/nowhere" };
  await expect(policies.add("nowhere", nowhere, trainer.weights(id))).rejects.toMatchObject({ code: expect.any(String) });
  expect(memory.bytes).toBe(before);
  // The policy shares the tensors of a model that is unloaded.
  await trainer.unload(id);
  expect(memory.bytes).toBe(0);
});
