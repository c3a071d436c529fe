/** Memory of the device `webgpu`, shared by running requests and training, where an adapter is installed. */
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { Row } from "../../../src/engine/index.ts";
import { readModelConfig } from "../../../src/engine/onnx/model/config.ts";
import { DeviceBases } from "../../../src/engine/onnx/model/device-bases.ts";
import { webgpu } from "../../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../../src/engine/onnx/runtime/device-memory.ts";
import { onDevice } from "../../../src/engine/onnx/sample/device-place.ts";
import { KeysRoom, type MemoryUser } from "../../../src/engine/onnx/sample/keys-room.ts";
import { positionsNeeded } from "../../../src/engine/onnx/train/batch.ts";
import { DeviceTrainer } from "../../../src/engine/onnx/train/device-trainer.ts";
import { deviceBudget } from "../../../src/engine/onnx/train/memory-plan.ts";
import { missingAdapter } from "../../support/adapter.ts";
import { params, startSampler } from "./sampling.ts";

const base = { id: "shipped", directory: join(import.meta.dirname, "../../../models/whetstone-tiny") };
const { layers, kvHeads, headSize } = await readModelConfig(base.directory);
/** Bytes of the keys and values of a token. */
const TOKEN_BYTES = 2 * layers * kvHeads * headSize * Float32Array.BYTES_PER_ELEMENT;
const { signal } = new AbortController();

const promptOf = (index: number) => Int32Array.from({ length: 20 + index }, (_, t) => (index * 37 + t * 17) % 500);
const rowOf = (length: number): Row => ({
  tokens: Int32Array.from({ length }, (_, t) => t % 500),
  weights: Float32Array.from({ length }, (_, t) => Number(t > 0)),
  logprobs: new Float32Array(length).fill(NaN),
  advantages: new Float32Array(length).fill(1),
});

/** Starts a sampler and records its decoding steps: the number of rows, and the tokens of the longest row after the step. */
async function start(size: number | undefined, other: MemoryUser | null = null) {
  const memory = new DeviceMemory(webgpu());
  const bases = new DeviceBases(memory, positionsNeeded);
  const { place, weights } = onDevice(memory, bases, new KeysRoom(memory, size, other));
  const steps: { readonly rows: number; readonly length: number }[] = [];
  const watched: typeof place = {
    ...place,
    get maxPiece() {
      return place.maxPiece;
    },
    run(input) {
      const lengths = input.pasts.filter((length) => length > 0);
      if (input.kind === "draw") steps.push({ rows: lengths.length, length: Math.max(...lengths) + 1 });
      return place.run(input);
    },
  };
  return { memory, steps, ...(await startSampler({ place: watched, weights }, base, null, () => {}, { prefixCacheBytes: 0 })) };
}

const mostRows = (steps: readonly { readonly rows: number }[]) => Math.max(...steps.map(({ rows }) => rows));

const runAll = ({ sample }: Pick<Awaited<ReturnType<typeof start>>, "sample">) =>
  Promise.all([0, 1, 2, 3, 4, 5].map((index) => sample(promptOf(index), params(index, { maxTokens: 40 + 10 * index }))));

describe.skipIf(missingAdapter !== null)(
  `memory of the device webgpu${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  { timeout: 120_000 },
  () => {
    test("requests wait or are suspended while the memory has no room for their keys and values, and get the same tokens", async () => {
      const unlimited = await start(undefined);
      const expected = await runAll(unlimited);
      expect(mostRows(unlimited.steps)).toBe(6);
      // An eighth has room for two copies of four rows of 64 tokens, or two of 128. Training takes the rest.
      const size = 8 * 2 * 4 * 64 * TOKEN_BYTES;
      const limited = await start(size, { pendingBytes: size, freeBuffers: () => {} });
      const actual = await runAll(limited);
      expect(actual.map((tokens) => tokens.map(({ id }) => id))).toEqual(expected.map((tokens) => tokens.map(({ id }) => id)));
      expect(mostRows(limited.steps)).toBe(2);
      for (const { rows, length } of limited.steps) expect(rows * Math.ceil(length / 64)).toBeLessThanOrEqual(4);
    });

    test("requests without memory free the buffers of training, and wait for a training pass that needs them", async () => {
      const needs = { pendingBytes: 0, freed: 0, freeBuffers: () => void needs.freed++ };
      // An eighth has room for two copies of four rows of 128 tokens.
      const size = 8 * 2 * 4 * 128 * TOKEN_BYTES;
      const { steps, ...sampler } = await start(size, needs);
      await runAll(sampler);
      expect([mostRows(steps), needs.freed]).toEqual([6, 0]);
      steps.length = 0;
      needs.pendingBytes = size;
      await runAll(sampler);
      expect(needs.freed).toBeGreaterThan(0);
      // At least an eighth of the memory is left.
      expect(mostRows(steps)).toBe(4);
    });

    test("the caches of requests that have ended are freed", async () => {
      const { memory, sample } = await start(undefined);
      const before = memory.bytes;
      await sample(promptOf(1), params(1));
      expect(memory.bytes).toBe(before);
    });

    test("a training pass asks for room before its first batch, and keeps its buffers until it ends", async () => {
      const memory = new DeviceMemory(webgpu());
      const asked: number[] = [];
      const trainer: DeviceTrainer = new DeviceTrainer(
        memory,
        new DeviceBases(memory, positionsNeeded),
        { ...deviceBudget(), minPooledBytes: 1 },
        async () => {
          asked.push(trainer.pendingBytes);
          trainer.freeBuffers();
        },
      );
      const id = await trainer.createModel(base, { lora: { rank: 4 }, seed: 1 });
      const before = memory.bytes;
      const step = () => trainer.forwardBackward(id, [rowOf(64)], { kind: "cross-entropy" }, signal);
      await step();
      const { bytes } = memory;
      expect(asked[0]).toBeGreaterThan(0);
      expect(bytes).toBeGreaterThan(before);
      expect(trainer.pendingBytes).toBe(0);
      await step();
      // Its buffers are there already, and were not freed during the pass.
      expect(asked[1]).toBeLessThan(asked[0]!);
      expect(memory.bytes).toBeGreaterThanOrEqual(bytes);
      trainer.freeBuffers();
      expect(memory.bytes).toBeLessThan(bytes);
    });
  },
);
