/** Training and sampling on the device `webgpu`, where an adapter is installed. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { createOnnxEngine, type Row } from "../../../src/engine/index.ts";
import { DeviceBases } from "../../../src/engine/onnx/model/device-bases.ts";
import { webgpu } from "../../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../../src/engine/onnx/runtime/device-memory.ts";
import { onDevice } from "../../../src/engine/onnx/sample/device-place.ts";
import { positionsNeeded } from "../../../src/engine/onnx/train/batch.ts";
import { DeviceTrainer } from "../../../src/engine/onnx/train/device-trainer.ts";
import { Trainer } from "../../../src/engine/onnx/train/trainer.ts";
import { missingAdapter } from "../../support/adapter.ts";
import { params, startSampler } from "./sampling.ts";

const base = { id: "oracle", directory: join(import.meta.dirname, "../../oracle/llama/model") };
const lora = { rank: 4, alpha: 8 };
const loss = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2 } as const;
const adam = { learningRate: 1e-2, maxGradNorm: 1 };
const { signal } = new AbortController();
const LENGTH = 24;
const ROWS: Row[] = [1, 2, 3].map((k) => ({
  tokens: Int32Array.from({ length: LENGTH }, (_, t) => (t < 10 ? t : (t * k) % 48)),
  weights: Float32Array.from({ length: LENGTH }, (_, t) => Number(t >= 10)),
  logprobs: new Float32Array(LENGTH).fill(NaN),
  advantages: new Float32Array(LENGTH).fill(k - 2),
}));

function setup(onPlacement: Parameters<typeof webgpu>[0] = null) {
  const device = webgpu(onPlacement);
  const memory = new DeviceMemory(device);
  const bases = new DeviceBases(memory, positionsNeeded);
  return { device, memory, bases, trainer: new DeviceTrainer(memory, bases) };
}

async function trained(trainer: Trainer | DeviceTrainer, steps: number, spec: { lora?: typeof lora } = { lora }): Promise<string> {
  const id = await trainer.createModel(base, { ...spec, seed: 3 });
  for (let step = 0; step < steps; step++) {
    await trainer.forwardBackward(id, ROWS, loss, signal);
    await trainer.optimStep(id, adam);
  }
  return id;
}

async function scratch(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-device-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** Process of the device: the only child of this process. */
async function childId(): Promise<number> {
  const children = (await readFile(`/proc/self/task/${process.pid}/children`, "utf8")).trim().split(" ").map(Number);
  for (const pid of children) if ((await readFile(`/proc/${pid}/cmdline`, "utf8")).includes("device-worker")) return pid;
  throw new Error("The device has no process");
}

describe.skipIf(missingAdapter !== null)(
  `device webgpu${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  { timeout: 120_000 },
  () => {
    test("all nodes of training and sampling graphs run on the device, except arithmetic on integers", async () => {
      const programs = new Map<string, object>();
      const { memory, bases, trainer } = setup(({ program, onProcessor }) => programs.set(program, onProcessor));
      await trained(trainer, 1);
      await trained(trainer, 1, {});
      const model = await trained(trainer, 1);
      const sampler = await startSampler(onDevice(memory, bases), base, trainer.weights(model));
      const prompt = Int32Array.of(1, 2, 3);
      await Promise.all([sampler.sample(prompt, params(1)), sampler.sample(prompt, params(2, { topP: 0.9 }))]);
      await sampler.sample(prompt, params(1));
      // The second prompt continues the first block of the first.
      for (const other of [0, 1])
        await sampler.sample(
          Int32Array.from({ length: 40 }, (_, t) => (t < 20 ? t : t + other)),
          params(1),
        );
      expect([...programs.keys()].toSorted()).toEqual(
        [
          "adamw",
          "check-attention",
          "continuation",
          "decode",
          "draw",
          "gather-cache",
          "gradient-norm",
          "prompt",
          "stack-adapters",
          "train-cispo",
          "upload",
          "zeros",
        ].toSorted(),
      );
      expect(Object.fromEntries(programs)).toEqual(Object.fromEntries([...programs.keys()].map((name) => [name, {}])));
    });

    test("three steps give the weights of the processor within rounding, twice the same bits", async () => {
      const processor = new Trainer({ threads: 1 });
      const expected = processor.weights(await trained(processor, 3)).flat;
      const weights = async () => {
        const { trainer } = setup();
        const id = await trained(trainer, 3);
        return trainer.weights(id).weights.download(expected.length);
      };
      const [first, second] = [await weights(), await weights()];
      expect(second).toEqual(first);
      const worst = first.reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i]!)), 0);
      expect(worst).toBeLessThan(1e-4);
    });

    test("a state saved on the device continues on the processor, and the other way round", async () => {
      const { trainer } = setup();
      const processor = new Trainer({ threads: 1 });
      const state = await scratch();
      await trainer.saveState(await trained(trainer, 2), state);
      const continued = await processor.createModel(base, { lora, seed: 0, from: state });
      await processor.forwardBackward(continued, ROWS, loss, signal);
      expect((await processor.optimStep(continued, adam)).step).toBe(3);
      const back = await scratch();
      await processor.saveState(continued, back);
      const again = await trainer.createModel(base, { lora, seed: 0, from: back });
      const [here, there] = [await trainer.forward(again, ROWS, signal), await processor.forward(continued, ROWS, signal)];
      here.forEach((row, i) => row.forEach((value, t) => expect(value).toBeCloseTo(there[i]![t]!, 4)));
    });

    test("a step transfers rows and results, and no weights", async () => {
      const { device, memory, trainer } = setup();
      const id = await trained(trainer, 1);
      const { uploaded, downloaded } = device.transferred;
      await trainer.forwardBackward(id, ROWS, loss, signal);
      await trainer.optimStep(id, adam);
      // Rows as 64-bit ids and float32 columns; log-probabilities and entropies; the scalars of the optimizer.
      expect(device.transferred.uploaded - uploaded).toBeLessThan(20_000);
      expect(device.transferred.downloaded - downloaded).toBeLessThan(1000);
      expect(memory.bytes).toBeGreaterThan(100_000);
      await trainer.unload(id);
      expect(memory.bytes).toBe(0);
    });

    test("gradients are as before after a step that was aborted or had non-finite results", async () => {
      const { trainer } = setup();
      const id = await trained(trainer, 1);
      await trainer.forwardBackward(id, ROWS, loss, signal);
      const before = await trainer.gradients(id);
      await expect(trainer.forwardBackward(id, ROWS, loss, AbortSignal.abort(new Error("enough")))).rejects.toThrow("enough");
      const huge = ROWS.map((row) => ({ ...row, advantages: new Float32Array(LENGTH).fill(3e38) }));
      await expect(trainer.forwardBackward(id, huge, loss, signal)).rejects.toMatchObject({ code: "E_NON_FINITE" });
      expect(await trainer.gradients(id)).toEqual(before);
    });

    test("the death of the device's process fails the calls; models and policies are loaded again in a new one", async () => {
      const deaths: string[] = [];
      const engine = await createOnnxEngine({
        baseModels: { oracle: base.directory },
        device: "webgpu",
        onWorkerDeath: ({ worker, message }) => deaths.push(`${worker}: ${message}`),
      });
      onTestFinished(() => engine.close());
      expect(engine.devices!()).toEqual([{ name: "webgpu", adapter: expect.any(String), weightPrecision: "float32" }]);
      const policy = await engine.loadPolicy({ base: "oracle" });
      const sample = async (of: typeof policy) => {
        const ids: number[] = [];
        for await (const { id } of engine.sample(of, Int32Array.of(1, 2, 3), params(7))) ids.push(id);
        return ids;
      };
      const expected = await sample(policy);
      const model = await engine.createModel({ base: "oracle", lora, seed: 1 });
      const running = engine.forwardBackward(model, ROWS, loss);
      running.catch(() => {});
      process.kill(await childId(), "SIGKILL");
      await expect(running).rejects.toMatchObject({ code: "E_UNAVAILABLE" });
      expect(engine.holds!(policy)).toBe(false);
      expect(engine.holds!(model)).toBe(false);
      await expect.poll(() => engine.workers!().every(({ state, restarts }) => state === "running" && restarts === 1)).toBe(true);
      expect(deaths).toHaveLength(2);
      expect(deaths[0]).toMatch(/device-\w+: .*SIGKILL$/);
      expect(await sample(await engine.loadPolicy({ base: "oracle" }))).toEqual(expected);
    });

    test("an engine closes although the process of its device hangs", async () => {
      const engine = await createOnnxEngine({ baseModels: { oracle: base.directory }, device: "webgpu" });
      const child = await childId();
      process.kill(child, "SIGSTOP");
      await engine.close();
      expect(() => process.kill(child, 0)).toThrow("ESRCH");
    });

    test("signals to all processes of a terminal leave the device running, so that requests can finish", async () => {
      const engine = await createOnnxEngine({ baseModels: { oracle: base.directory }, device: "webgpu" });
      onTestFinished(() => engine.close());
      const policy = await engine.loadPolicy({ base: "oracle" });
      const child = await childId();
      let count = 0;
      for await (const token of engine.sample(policy, Int32Array.of(1, 2, 3), params(7, { maxTokens: 20 }))) {
        if (count === 0) for (const each of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.kill(child, each);
        expect(token.id).toBeGreaterThanOrEqual(0);
        count++;
      }
      expect(count).toBe(20);
      expect(engine.workers!().map(({ restarts }) => restarts)).toEqual([0, 0]);
    });

    test("with 2 GB of `deviceMemory`, 1,280 tokens are two batches of at most 1,024, each with a loss of 4 bytes", async () => {
      const rows = Array.from({ length: 20 }, (_, row): Row => {
        const tokens = Int32Array.from({ length: 64 }, (__, t) => (row * 7 + t * (row + 1)) % 48);
        return { tokens, weights: Float32Array.from({ length: 64 }, (__, t) => Number(t === 63)) };
      });
      const engine = await createOnnxEngine({ baseModels: { oracle: base.directory }, device: "webgpu", deviceMemory: 2e9 });
      onTestFinished(() => engine.close());
      const model = await engine.createModel({ base: "oracle", lora, seed: 1 });
      const { metrics } = await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
      // 24 log-probabilities and entropies, padding included.
      expect(metrics.device!.downloadedBytes).toBe(24 * 8 + 2 * 4);
    });

    test("with `auto`, a software adapter is not used", async () => {
      const engine = await createOnnxEngine({ baseModels: { oracle: base.directory }, device: "auto" });
      onTestFinished(() => engine.close());
      await engine.loadPolicy({ base: "oracle" });
      expect(engine.devices!()).toEqual([{ name: "cpu", adapter: null, rolloutPrecision: "float32" }]);
    });
  },
);

test("a device that cannot be opened is an error with a remedy", async () => {
  vi.stubEnv("VK_DRIVER_FILES", "/nonexistent");
  vi.stubEnv("VK_ICD_FILENAMES", "/nonexistent");
  onTestFinished(() => void vi.unstubAllEnvs());
  await expect(createOnnxEngine({ baseModels: {}, device: "webgpu" })).rejects.toMatchObject({
    code: "E_ENGINE",
    message: expect.stringMatching(/^The device "webgpu" could not be opened: (?!.*\.cc:).*driver.*device "cpu"$/su),
  });
  await expect(createOnnxEngine({ baseModels: {}, device: "cuda" as "cpu" })).rejects.toMatchObject({ code: "E_CONFIG", param: "device" });
});
