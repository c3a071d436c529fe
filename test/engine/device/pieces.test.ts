/** Embeddings and output heads in pieces on the device `webgpu`, where an adapter is installed, next to whole ones and the processor. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { DevicePrecision } from "../../../src/engine/engine-info.ts";
import type { Row, SampledToken } from "../../../src/engine/index.ts";
import { readModelConfig } from "../../../src/engine/onnx/model/config.ts";
import { DeviceBases } from "../../../src/engine/onnx/model/device-bases.ts";
import { baseLayout, cutLayout } from "../../../src/engine/onnx/model/parameters.ts";
import { webgpu } from "../../../src/engine/onnx/runtime/device.ts";
import { DeviceMemory } from "../../../src/engine/onnx/runtime/device-memory.ts";
import { onDevice } from "../../../src/engine/onnx/sample/device-place.ts";
import { positionsNeeded } from "../../../src/engine/onnx/train/batch.ts";
import { DeviceTrainer } from "../../../src/engine/onnx/train/device-trainer.ts";
import { deviceBudget } from "../../../src/engine/onnx/train/memory-plan.ts";
import { Trainer } from "../../../src/engine/onnx/train/trainer.ts";
import { missingAdapter } from "../../support/adapter.ts";
import { missingFloat16 } from "../../support/float16-adapter.ts";
import { params, startSampler } from "./sampling.ts";

/** Cuts an embedding [48, 32] into 20, 20 and 8 rows, and a head [32, 48] into 12, 12 and 8. */
const MAX_BYTES = 2560;
const lora = { rank: 4, alpha: 8 };
const loss = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2, entropyCoef: 0.01 } as const;
const adam = { learningRate: 1e-2, weightDecay: 0.1, maxGradNorm: 1 };
const { signal } = new AbortController();
const LENGTH = 24;
// The tokens are ids of every piece, the first and the last of each among them.
const ROWS: Row[] = [1, 5, 7].map((k) => ({
  tokens: Int32Array.from({ length: LENGTH }, (_, t) => [0, 19, 20, 39, 40, 47][t] ?? (t * k) % 48),
  weights: Float32Array.from({ length: LENGTH }, (_, t) => Number(t >= 4)),
  logprobs: new Float32Array(LENGTH).fill(NaN),
  advantages: new Float32Array(LENGTH).fill(k - 4),
}));
const SUBJECTS = [
  ["tied", { id: "oracle", directory: join(import.meta.dirname, "../../oracle/llama/model") }],
  ["separate", { id: "llama3", directory: join(import.meta.dirname, "../../oracle/families/llama3/model") }],
] as const;

function setup(maxPieceBytes?: number, onPlacement: Parameters<typeof webgpu>[0] = null, precision: DevicePrecision = "float32") {
  const memory = new DeviceMemory(webgpu(onPlacement), maxPieceBytes);
  const bases = new DeviceBases(memory, positionsNeeded, precision);
  return { memory, bases, trainer: new DeviceTrainer(memory, bases), place: onDevice(memory, bases) };
}

type Base = (typeof SUBJECTS)[number][1];

async function trained(trainer: Trainer | DeviceTrainer, base: Base, spec: { lora?: typeof lora } = {}, steps = 2): Promise<string> {
  const id = await trainer.createModel(base, { ...spec, seed: 3 });
  for (let step = 0; step < steps; step++) {
    await trainer.forwardBackward(id, ROWS, loss, signal);
    await trainer.optimStep(id, adam);
  }
  return id;
}

/** Returns the results of a training run: log-probabilities, gradients, the gradient norm and the updated weights. */
async function computed(trainer: Trainer | DeviceTrainer, base: Base, spec: { lora?: typeof lora }) {
  const id = await trained(trainer, base, spec);
  const { logprobs } = await trainer.forwardBackward(id, ROWS, loss, signal);
  const gradients = await trainer.gradients(id);
  const { gradNorm } = await trainer.optimStep(id, adam);
  const weights = trainer instanceof Trainer ? trainer.weights(id).flat : await trainer.weights(id).weights.download(gradients.length);
  const parts = {
    logprobs: Float32Array.from(logprobs.flatMap((row) => [...row])),
    gradients,
    gradNorm: Float32Array.of(gradNorm),
    weights,
  };
  return Object.entries(parts);
}

type Computed = Awaited<ReturnType<typeof computed>>;

/** Checks values against others, relative to the largest of each kind. AdamW enlarges the rounding of small gradients. */
function expectClose(actual: Computed, expected: Computed): void {
  expected.forEach(([name, values], i) => {
    const scale = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    expect(scale, name).toBeGreaterThan(0);
    const worst = values.reduce((most, value, at) => Math.max(most, Math.abs(value - actual[i]![1][at]!)), 0);
    expect(worst / scale, name).toBeLessThan(1e-4);
  });
}

async function scratch(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-pieces-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

test("a layout in pieces is the same flat vector; only the embedding and the head are cut, into pieces of at most the given bytes", async () => {
  const layout = baseLayout(await readModelConfig(SUBJECTS[1][1].directory));
  const { parameters, ...rest } = cutLayout(layout, MAX_BYTES);
  expect(rest).toEqual({ decayed: layout.decayed, length: layout.length });
  const pieces = parameters.filter(({ name }) => /^(?:embedding|head)/u.test(name));
  expect(pieces.map(({ name, shape }) => `${name} ${shape.join()}`)).toEqual([
    "embedding_piece0 20,32",
    "embedding_piece1 20,32",
    "embedding_piece2 8,32",
    "head_piece0 12,48",
    "head_piece1 12,48",
    "head_piece2 8,48",
  ]);
  for (const { size } of pieces) expect(4 * size).toBeLessThanOrEqual(MAX_BYTES);
  expect(parameters.filter((parameter) => !pieces.includes(parameter))).toEqual(
    layout.parameters.filter(({ name }) => !["embedding", "head"].includes(name)),
  );
  let end = 0;
  for (const { offset, size, shape } of parameters) {
    expect(offset).toBe(end);
    expect(shape.reduce((a, b) => a * b)).toBe(size);
    end += size;
  }
  expect(cutLayout(layout, 2 ** 27)).toEqual(layout);
});

test.skipIf(missingAdapter !== null)(
  "on the device webgpu, logits of a large vocabulary are computed in slices that every adapter can bind",
  { timeout: 120_000 },
  async () => {
    const directory = await scratch();
    const config = JSON.parse(await readFile(join(SUBJECTS[0][1].directory, "config.json"), "utf8")) as object;
    // The logits of all 300 trained tokens take 182 MB.
    await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, vocab_size: 151_936, num_hidden_layers: 1 }));
    const rows = Array.from({ length: 5 }, (_, row): Row => {
      const tokens = Int32Array.from({ length: 61 }, (__, t) => (row * 31_000 + t * 1009) % 151_936);
      return { tokens, weights: new Float32Array(61).fill(1 / 300, 1) };
    });
    const gradients = async (trainer: Trainer | DeviceTrainer) => {
      const id = await trainer.createModel({ id: "large", directory }, { lora, seed: 3, fresh: true });
      const { logprobs } = await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
      return { logprobs: logprobs.flatMap((row) => [...row]), gradients: await trainer.gradients(id) };
    };
    const [here, there] = [await gradients(setup().trainer), await gradients(new Trainer({ threads: 1 }))];
    here.logprobs.forEach((value, i) => expect(value).toBeCloseTo(there.logprobs[i]!, 4));
    const scale = there.gradients.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    here.gradients.forEach((value, i) => expect(Math.abs(value - there.gradients[i]!)).toBeLessThan(1e-4 * scale));
  },
);

describe.skipIf(missingAdapter !== null).each(SUBJECTS)(
  `pieces on the device webgpu, %s head${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  { timeout: 120_000 },
  (_, base) => {
    test.each([
      ["every parameter", {}],
      ["an adapter", { lora }],
    ])("training %s gives the values of whole tensors and of the processor within rounding", async (__, spec) => {
      const pieces = await computed(setup(MAX_BYTES).trainer, base, spec);
      expectClose(pieces, await computed(setup().trainer, base, spec));
      expectClose(pieces, await computed(new Trainer({ threads: 1 }), base, spec));
    });

    test("training in slices of the trained tokens, with recomputed layers, gives the same values, twice the same bits", async () => {
      const { memory, bases, trainer } = setup(MAX_BYTES);
      const sliced = new DeviceTrainer(memory, bases, { ...deviceBudget(), logitsBytes: 1000, unorderedBytes: 1000, keptBytes: 100_000 });
      const values = await computed(sliced, base, {});
      expectClose(values, await computed(trainer, base, {}));
      expect(await computed(sliced, base, {})).toEqual(values);
    });

    test("tensors of more than the max bytes are in pieces, and all nodes run on the device", async () => {
      const programs: Record<string, object> = {};
      const { memory, trainer, place } = setup(MAX_BYTES, ({ program, onProcessor }) => (programs[program] = onProcessor));
      const id = await trained(trainer, base, {}, 1);
      const { weights } = trainer.weights(id);
      const layout = cutLayout(baseLayout(await readModelConfig(base.directory)), MAX_BYTES);
      expect(Object.fromEntries(Object.entries(weights.feeds()).map(([name, { dims }]) => [name, dims]))).toEqual(
        Object.fromEntries(layout.parameters.map(({ name, shape }) => [name, shape])),
      );
      const sampler = await startSampler(place, base, { weights, lora: null });
      await Promise.all([sampler.sample(Int32Array.of(1, 47), params(1)), sampler.sample(Int32Array.of(2, 21), params(2, { topP: 0.9 }))]);
      expect(Object.keys(programs)).toEqual(expect.arrayContaining(["train-cispo", "adamw", "gradient-norm", "prompt", "decode"]));
      expect(programs).toEqual(Object.fromEntries(Object.keys(programs).map((name) => [name, {}])));
      await trainer.unload(id);
      weights.release();
      expect(memory.bytes).toBeGreaterThan(0);
    });

    test("samples the tokens of whole tensors, from the base model, a published model and a saved adapter", async () => {
      const state = await scratch();
      const processor = new Trainer({ threads: 1 });
      await processor.saveState(await trained(processor, base, { lora }), state);
      const requests = [{ temperature: 0 }, { temperature: 1 }, { temperature: 1.3 }, { topLogprobs: 48 }, { topP: 0.9 }];
      const sample = async (maxPieceBytes?: number) => {
        const { trainer, place } = setup(maxPieceBytes);
        const published = trainer.weights(await trained(trainer, base));
        const policies = [null, published, await place.weights.read(state, base.id, await readModelConfig(base.directory))];
        const tokens: SampledToken[][] = [];
        for (const policy of policies) {
          const sampler = await startSampler(place, base, policy);
          const prompts = requests.map((__, i) => Int32Array.of(i, 19, 20, 40 + (i % 8)));
          tokens.push(...(await Promise.all(requests.map((more, i) => sampler.sample(prompts[i]!, params(i, { maxTokens: 6, ...more }))))));
        }
        return tokens;
      };
      const [pieces, whole] = [await sample(MAX_BYTES), await sample()];
      expect(pieces.map((row) => row.map(({ id }) => id))).toEqual(whole.map((row) => row.map(({ id }) => id)));
      pieces.forEach((row, i) => row.forEach(({ logprob }, t) => expect(logprob).toBeCloseTo(whole[i]![t]!.logprob, 4)));
    });

    test("a saved state has the tensors of the processor's, and continues in pieces, whole and on the processor", async () => {
      const first = setup(MAX_BYTES).trainer;
      const id = await trained(first, base);
      const state = await scratch();
      await first.saveState(id, state);
      const { weights } = first.weights(id);
      const size = baseLayout(await readModelConfig(base.directory)).length;
      const saved = await weights.download(size);
      const next = async (trainer: Trainer | DeviceTrainer) => {
        const from = await trainer.createModel(base, { seed: 0, from: state });
        const loaded = trainer instanceof Trainer ? trainer.weights(from).flat : await trainer.weights(from).weights.download(size);
        expect(loaded).toEqual(saved);
        await trainer.forwardBackward(from, ROWS, loss, signal);
        const { step, gradNorm } = await trainer.optimStep(from, adam);
        expect(step).toBe(3);
        const back = await scratch();
        await trainer.saveState(from, back);
        return { gradNorm, moments: (await readFile(join(back, "optimizer.safetensors"))).length };
      };
      const { trainer } = setup(MAX_BYTES);
      const [pieces, whole, processor] = [await next(trainer), await next(setup().trainer), await next(new Trainer({ threads: 1 }))];
      expect(pieces.gradNorm / whole.gradNorm).toBeCloseTo(1, 4);
      expect(pieces.gradNorm / processor.gradNorm).toBeCloseTo(1, 4);
      expect(pieces.moments).toBe(processor.moments);
    });
  },
);

describe.skipIf(missingFloat16 !== null).each(SUBJECTS)(
  `float16 pieces on the device webgpu, %s head${missingFloat16 === null ? "" : `: ${missingFloat16}`}`,
  { timeout: 120_000 },
  (_, base) => {
    const half = (maxPieceBytes?: number) => setup(maxPieceBytes, null, "float16");

    test("training an adapter gives the values of whole tensors within rounding", async () => {
      expectClose(await computed(half(MAX_BYTES).trainer, base, { lora }), await computed(half().trainer, base, { lora }));
    });

    test("samples the tokens of whole tensors", async () => {
      const sample = async (maxPieceBytes?: number) => {
        const sampler = await startSampler(half(maxPieceBytes).place, base);
        return Promise.all([0, 19, 20, 47].map((id) => sampler.sample(Int32Array.of(id, 40), params(id, { maxTokens: 6 }))));
      };
      const [pieces, whole] = [await sample(MAX_BYTES), await sample()];
      expect(pieces.map((row) => row.map(({ id }) => id))).toEqual(whole.map((row) => row.map(({ id }) => id)));
      pieces.forEach((row, i) => row.forEach(({ logprob }, t) => expect(logprob).toBeCloseTo(whole[i]![t]!.logprob, 4)));
    });
  },
);
