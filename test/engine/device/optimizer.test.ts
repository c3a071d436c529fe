/** The optimizer of the device `webgpu` next to the processor's, where an adapter is installed. */
import { describe, expect, test } from "vitest";
import { type Layout, layOut } from "../../../src/engine/onnx/model/parameters.ts";
import { webgpu } from "../../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../../src/engine/onnx/runtime/device-memory.ts";
import { DeviceVector } from "../../../src/engine/onnx/runtime/device-vector.ts";
import { DeviceOptimizer, groupsOf } from "../../../src/engine/onnx/train/device-optimizer.ts";
import { Optimizer } from "../../../src/engine/onnx/train/optimizer.ts";
import { missingAdapter } from "../../support/adapter.ts";

const layoutOf = (matrices: readonly (readonly [number, number])[], gains: readonly number[]): Layout =>
  layOut([
    ...matrices.map((shape, i) => ({
      name: `matrix${i}`,
      shape,
      kind: "matrix" as const,
      files: [{ name: `matrix${i}`, start: 0, width: shape[1] }],
    })),
    ...gains.map((size, i) => ({
      name: `gain${i}`,
      shape: [size],
      kind: "gain" as const,
      files: [{ name: `gain${i}`, start: 0, width: size }],
    })),
  ]);

/** Many small tensors of odd sizes with weight decay and one without: groups of 60 and of 1. */
const MANY = layoutOf(
  Array.from({ length: 60 }, (_, i) => [3 + (i % 7), 5 + (i % 4)]),
  [67],
);
/** A matrix with weight decay and two vectors without decay: groups of 1 and 2 tensors. */
const FEW = layoutOf([[129, 63]], [64, 7]);

/** Values in (-scale, scale) with zeros in the padding. */
function noise({ parameters, length }: Layout, seed: number, scale: number): Float32Array {
  const { offset, size } = parameters.at(-1)!;
  return new Float32Array(length).map((_, i) => (i < offset + size ? scale * Math.sin(seed + 12.9898 * i) : 0));
}

test("a group has the same decay throughout, and at most 64 MiB or one parameter", () => {
  const limit = 2 ** 24;
  const layout = layoutOf(
    [
      [3, 5],
      [limit + 1, 1],
      [limit - 1, 1],
      [1, 1],
      [1, 1],
    ],
    [64, 7],
  );
  const groups = groupsOf(layout);
  expect(groups.map(({ size }) => size)).toEqual([15, limit + 1, limit, 1, 71]);
  expect(groups.map(({ isDecayed }) => isDecayed)).toEqual([true, true, true, true, false]);
  expect(groups.flatMap(({ parameters }) => parameters)).toEqual(layout.parameters);
  expect(groups.map(({ offset }) => offset)).toEqual(groups.map(({ parameters }) => parameters[0]!.offset));
});

describe.skipIf(missingAdapter !== null)(
  `optimizer on the device webgpu${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  { timeout: 120_000 },
  () => {
    test.each([
      ["60 and 1", MANY],
      ["1 and 2", FEW],
    ])("three steps over groups of %s tensors give the vectors of the processor within rounding", async (_, layout) => {
      const adam = { learningRate: 1e-2, weightDecay: 0.1, maxGradNorm: 1 };
      const vectors = { parameters: noise(layout, 1, 1), first: new Float32Array(layout.length), second: new Float32Array(layout.length) };
      const memory = new DeviceMemory(webgpu());
      const upload = (flat: Float32Array) => DeviceVector.upload(memory, layout.parameters, flat);
      const there = {
        parameters: await upload(vectors.parameters),
        gradients: await upload(noise(layout, 2, 1)),
        first: await DeviceVector.zeros(memory, groupsOf(layout)),
        second: await DeviceVector.zeros(memory, groupsOf(layout)),
      };
      const [optimizer, onDevice] = [await Optimizer.create(1), new DeviceOptimizer(memory)];
      const state = { ...vectors, gradients: new Float32Array(0), step: 0 };
      for (const step of [1, 2, 3]) {
        // Zeros of equal shape are one tensor.
        const isZero = step === 3;
        const gradients = noise(layout, step + 1, isZero ? 0 : 1);
        await (isZero ? there.gradients.clear() : there.gradients.write(gradients));
        const norm = await optimizer.step({ ...state, gradients, step: step - 1 }, layout, adam);
        expect(Math.abs((await onDevice.step(there, layout, adam, step)) - norm)).toBeLessThanOrEqual(1e-6 * norm);
      }
      for (const name of ["parameters", "first", "second"] as const) {
        const [expected, actual] = [vectors[name], await there[name].download(layout.length)];
        const scale = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        expect(scale, name).toBeGreaterThan(0);
        expect(actual.reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i]!)), 0) / scale, name).toBeLessThan(1e-6);
      }
      for (const vector of Object.values(there)) vector.release();
      expect(memory.bytes).toBe(0);
    });
  },
);
