/** Buffers that runs on the device `webgpu` reuse, where an adapter is installed. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { LossSpec, Row } from "../../../src/engine/index.ts";
import { Graph, add, mul } from "../../../src/engine/onnx/graph/index.ts";
import { DeviceBases } from "../../../src/engine/onnx/model/device-bases.ts";
import { BufferPool, releaseAll } from "../../../src/engine/onnx/runtime/buffer-pool.ts";
import { endsDevice, webgpu } from "../../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../../src/engine/onnx/runtime/device-memory.ts";
import { loadRuntime, Program } from "../../../src/engine/onnx/runtime/program.ts";
import { positionsNeeded } from "../../../src/engine/onnx/train/batch.ts";
import { DeviceTrainer } from "../../../src/engine/onnx/train/device-trainer.ts";
import { type DeviceBudget, deviceBudget } from "../../../src/engine/onnx/train/memory-plan.ts";
import { missingAdapter } from "../../support/adapter.ts";

const base = { id: "oracle", directory: join(import.meta.dirname, "../../oracle/llama/model") };
const loss: LossSpec = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2 };
const { signal } = new AbortController();

/** Rows of random tokens, of which the first `shared` are equal. */
function rowsOf(count: number, length: number, shared = 0): Row[] {
  return Array.from({ length: count }, (_, row) => ({
    tokens: Int32Array.from({ length }, (__, t) => (t < shared ? t % 48 : (t * (row + 1)) % 48)),
    weights: Float32Array.from({ length }, (__, t) => Number(t >= Math.max(shared, 4))),
    logprobs: new Float32Array(length).fill(NaN),
    advantages: new Float32Array(length).fill(row - 1),
  }));
}

function setup(budget: Partial<DeviceBudget> = {}) {
  const device = webgpu();
  const memory = new DeviceMemory(device);
  const trainer = new DeviceTrainer(memory, new DeviceBases(memory, positionsNeeded), { ...deviceBudget(), minPooledBytes: 1, ...budget });
  return { device, memory, trainer };
}

const shapes = (...sizes: readonly (readonly number[])[]) => new Map(sizes.map((shape, i) => [`t${i}`, shape]));

test("the error of a run without allocated memory says what to do", () => {
  const message = "WebGPU validation failed. [Invalid Buffer (unlabeled)] is invalid due to a previous error.";
  expect(webgpu().remedyOf(message)).toMatch(/memory of the device is too small: train an adapter/);
});

test.each([
  [true, "[Invalid Buffer (unlabeled)] is invalid due to a previous error."],
  [true, "WebGPU device lost (2): a driver error"],
  [false, "Buffer size (2147483648) exceeds the max buffer size limit (1073741824)."],
  [false, "Expected matrices that multiply"],
])("whether an error ends the process of the device: %s for %s", (isEnd, message) => {
  expect(endsDevice(`The engine failed to run a graph: ${message}${webgpu().remedyOf(message)}`)).toBe(isEnd);
});

describe.skipIf(missingAdapter !== null)(
  `buffers of the device webgpu${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  { timeout: 120_000 },
  () => {
    test("a run writes its outputs to given tensors, in larger buffers, and downloads only the others", async () => {
      const { device, memory } = setup();
      const { Tensor } = await loadRuntime();
      const graph = new Graph();
      const x = graph.input("x", ["n"]);
      const square = mul(x, x);
      graph.directOutput("square", square);
      graph.output("fourth", mul(square, square));
      graph.output("sum", add(square, x));
      const program = await Program.compile(graph, "outputs", { threads: 1, device: memory.device });
      const pool = new BufferPool(memory, 1e6);
      releaseAll(await pool.acquire(shapes([100], [200])));
      const kept = await pool.acquire(shapes([7], [7]));
      const [squares, fourths] = [...kept.values()];
      const before = device.transferred.downloaded;
      const feeds = { x: new Tensor("float32", Float32Array.of(1, 2, 3, 4, 5, 6, 7), [7]) };
      const results = await program.run(feeds, { square: squares!.tensor, fourth: fourths!.tensor, sum: null });
      expect(Object.keys(results)).toEqual(["sum"]);
      expect(results["sum"]!.data).toEqual(Float32Array.of(2, 6, 12, 20, 30, 42, 56));
      expect(device.transferred.downloaded - before).toBe(4 * 7);
      expect(await memory.download(squares!)).toEqual(Float32Array.of(1, 4, 9, 16, 25, 36, 49));
      expect(await memory.download(fourths!)).toEqual(Float32Array.of(1, 16, 81, 256, 625, 1296, 2401));
    });

    test("a pool reuses its buffers for smaller tensors, the smallest sufficient one for each", async () => {
      const { memory } = setup();
      const pool = new BufferPool(memory, 1e6);
      releaseAll(await pool.acquire(shapes([10, 100], [4, 8])));
      const { bytes } = pool;
      expect(bytes).toBeGreaterThanOrEqual(4 * 1032);
      expect(memory.bytes).toBe(bytes);
      const taken = await pool.acquire(shapes([2, 3], [900]));
      expect(pool.bytes).toBe(bytes);
      expect([...taken].map(([name, { tensor }]) => [name, tensor.dims])).toEqual([
        ["t1", [900]],
        ["t0", [2, 3]],
      ]);
      const more = await pool.acquire(shapes([2, 3]));
      expect(pool.bytes).toBeGreaterThan(bytes);
      releaseAll(taken);
      releaseAll(more);
      pool.clear();
      expect([pool.bytes, memory.bytes]).toEqual([0, 0]);
    });

    test("a pool at its limit releases free buffers, omits optional tensors and does not keep buffers of others", async () => {
      const { memory } = setup();
      const pool = new BufferPool(memory, 4096);
      releaseAll(await pool.acquire(shapes([256], [512])));
      const large = await pool.acquire(shapes([1024]), true);
      expect([...large.keys()]).toEqual(["t0"]);
      expect(pool.bytes).toBe(4096);
      expect((await pool.acquire(shapes([16]), true)).size).toBe(0);
      const required = await pool.acquire(shapes([16]));
      expect(pool.bytes).toBe(4096 + 64);
      releaseAll(required);
      expect(pool.bytes).toBe(4096);
      pool.clear();
      expect(pool.bytes).toBe(4096);
      releaseAll(large);
      expect([pool.bytes, memory.bytes]).toEqual([0, 0]);
    });

    test.each([
      { label: "adapter", lora: { rank: 4, alpha: 8 }, budget: {} },
      { label: "every parameter, recomputed layer", lora: undefined, budget: { unorderedBytes: 0, keptBytes: 60_000 } },
    ])("gradients have the same bits with and without reused buffers: $label", async ({ lora, budget }) => {
      const batches = [rowsOf(3, 24), rowsOf(4, 40, 20), rowsOf(2, 56)];
      const gradients = async (own: Partial<DeviceBudget>) => {
        const { memory, trainer } = setup({ ...budget, ...own });
        const id = await trainer.createModel(base, { ...(lora ? { lora } : {}), seed: 3 });
        const all: Float32Array[] = [];
        for (const rows of batches) {
          await trainer.forwardBackward(id, rows, loss, signal);
          all.push(await trainer.gradients(id));
        }
        const { bytes } = memory;
        await trainer.unload(id);
        expect(memory.bytes).toBe(0);
        return { all, bytes };
      };
      const without = await gradients({ pooledBytes: 0, pooledGradientBytes: 0 });
      const reused = await gradients({});
      const limited = await gradients({ pooledBytes: 20_000, pooledGradientBytes: 0 });
      expect(reused.all).toEqual(without.all);
      expect(limited.all).toEqual(without.all);
      expect(reused.bytes).toBeGreaterThan(limited.bytes);
      expect(limited.bytes - without.bytes).toBeGreaterThan(10_000);
      expect(limited.bytes - without.bytes).toBeLessThanOrEqual(20_000);
    });

    test("rows of several query blocks, with and without a common prompt, are computed with reused buffers", async () => {
      const directory = await mkdtemp(join(tmpdir(), "whetstone-long-"));
      onTestFinished(() => rm(directory, { recursive: true }));
      const config = JSON.parse(await readFile(join(base.directory, "config.json"), "utf8")) as object;
      await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, max_position_embeddings: 4096 }));
      const gradients = async (budget: Partial<DeviceBudget>) => {
        const { trainer } = setup(budget);
        const id = await trainer.createModel({ id: "long", directory }, { lora: { rank: 4, alpha: 8 }, seed: 3, fresh: true });
        for (const rows of [rowsOf(1, 1100), rowsOf(2, 1300, 1100)]) await trainer.forwardBackward(id, rows, loss, signal);
        return trainer.gradients(id);
      };
      expect(await gradients({})).toEqual(await gradients({ pooledBytes: 0, pooledGradientBytes: 0 }));
    });

    test("the optimizer step of a model keeps the buffers, except if its gradients exceed their limit", async () => {
      const bytes = async (budget: Partial<DeviceBudget>) => {
        const { memory, trainer } = setup(budget);
        const id = await trainer.createModel(base, { lora: { rank: 4, alpha: 8 }, seed: 3 });
        await trainer.forwardBackward(id, rowsOf(2, 24), loss, signal);
        await trainer.optimStep(id, { learningRate: 1e-3 });
        return memory.bytes;
      };
      const without = await bytes({ pooledBytes: 0, pooledGradientBytes: 0 });
      expect(await bytes({})).toBeGreaterThan(without);
      expect(await bytes({ pooledGradientBytes: 1000 })).toBe(without);
    });

    test("repeated steps allocate no further memory, and an abort between two batches restores the gradients", async () => {
      const { memory, trainer } = setup();
      const id = await trainer.createModel(base, { lora: { rank: 4, alpha: 8 }, seed: 3 });
      // Rows with and without a common prompt are two batches.
      const rows = [...rowsOf(2, 40), ...rowsOf(3, 24, 12)];
      const step = (by = signal) => trainer.forwardBackward(id, rows, loss, by);
      await step();
      await step();
      const [before, bytes] = [await trainer.gradients(id), memory.bytes];
      const controller = new AbortController();
      const aborted = step(controller.signal);
      setImmediate(() => controller.abort(new Error("enough")));
      await expect(aborted).rejects.toThrow("enough");
      expect(await trainer.gradients(id)).toEqual(before);
      await step();
      expect(memory.bytes).toBe(bytes);
      await trainer.unload(id);
      expect(memory.bytes).toBe(0);
    });
  },
);
