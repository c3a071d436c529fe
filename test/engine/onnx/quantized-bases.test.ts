/** Base models in 4 and 8 bits: sampling, and training of adapters. */
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { createOnnxEngine, type Engine, type OnnxEngineOptions, type PolicyVersion, type Row } from "../../../src/engine/index.ts";
import { readModelConfig } from "../../../src/engine/onnx/model/config.ts";
import { baseLayout, viewOf } from "../../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../../src/engine/onnx/model/safetensors.ts";
import { readStoredWeights, toFloat32 } from "../../../src/engine/onnx/model/stored-weights.ts";
import { unpackTensors } from "../../../src/engine/onnx/model/weights.ts";
import { Trainer } from "../../../src/engine/onnx/train/trainer.ts";
import { writeRandomWeights } from "../../bench/random-weights.ts";

const SHIPPED = join(import.meta.dirname, "../../../models/whetstone-tiny");
/** Rows of 32 and 56 elements, tied embeddings. */
const TIED = join(import.meta.dirname, "../../oracle/llama/model");
/** Rows of 32 and 40 elements, biases of the attention. */
const BIASED = join(import.meta.dirname, "../../oracle/families/qwen2/model");
/** An output head of its own. */
const SEPARATE = join(import.meta.dirname, "../../oracle/families/llama3/model");

const loss = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2 } as const;
const lora = { rank: 4, alpha: 8 };
const LENGTH = 24;
const ROWS: Row[] = [1, 2, 3].map((k) => ({
  tokens: Int32Array.from({ length: LENGTH }, (_, t) => (t < 10 ? t : (t * k) % 30)),
  weights: Float32Array.from({ length: LENGTH }, (_, t) => Number(t >= 10)),
  logprobs: new Float32Array(LENGTH).fill(NaN),
  advantages: new Float32Array(LENGTH).fill(k - 2),
}));
const { signal } = new AbortController();

async function scratch(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-blocks-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** Writes a model in float32 with the values that a model has in blocks. */
async function dequantized(directory: string, precision: "int4" | "int8"): Promise<string> {
  const layout = baseLayout(await readModelConfig(directory));
  const { layout: rest, flat, blocks } = await readStoredWeights(directory, layout, precision);
  const all = new Float32Array(layout.length);
  for (const parameter of layout.parameters) {
    const matrix = blocks.get(parameter.name);
    viewOf(all, parameter).set(
      matrix
        ? toFloat32(matrix)
        : viewOf(
            flat,
            rest.parameters.find(({ name }) => name === parameter.name)!,
          ),
    );
  }
  const copy = await scratch();
  await cp(join(directory, "config.json"), join(copy, "config.json"));
  await writeSafetensors(join(copy, "model.safetensors"), unpackTensors(all, layout));
  return copy;
}

const worst = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((max, value, i) => Math.max(max, Math.abs(value - b[i]!)), 0);

describe.each([
  ["tied head", TIED],
  ["biases", BIASED],
  ["separate head", SEPARATE],
])("%s", (_, directory) => {
  test.each(["int4", "int8"] as const)("an adapter on %s weights has the gradients of the dequantized model", async (precision) => {
    const trained = async (weightPrecision: typeof precision | "float32", path: string, from?: string) => {
      const trainer = new Trainer({ threads: 1, weightPrecision });
      const id = await trainer.createModel({ id: "base", directory: path }, { lora, seed: 3, from });
      return { trainer, id };
    };
    const copy = await dequantized(directory, precision);
    const first = await trained("float32", copy);
    // Before the first step, an adapter has no effect.
    await first.trainer.forwardBackward(first.id, ROWS, { kind: "cross-entropy" }, signal);
    await first.trainer.optimStep(first.id, { learningRate: 1e-2 });
    const state = await scratch();
    await first.trainer.saveState(first.id, state);
    const compute = async ({ trainer, id }: typeof first) => {
      const { logprobs, metrics } = await trainer.forwardBackward(id, ROWS, loss, signal);
      return { logprobs: logprobs.flatMap((row) => [...row]), loss: metrics.loss, gradients: trainer.gradients(id) };
    };
    const expected = await compute(await trained("float32", copy, state));
    const found = await compute(await trained(precision, directory, state));
    expect(worst(found.logprobs, expected.logprobs)).toBeLessThan(5e-6);
    const largest = expected.gradients.reduce((max, each) => Math.max(max, Math.abs(each)), 0);
    expect(largest).toBeGreaterThan(1e-3);
    expect(worst(found.gradients, expected.gradients) / largest).toBeLessThan(1e-5);
  });
});

async function start(directory: string, options: Partial<OnnxEngineOptions>): Promise<Engine> {
  const engine = await createOnnxEngine({ baseModels: { base: directory }, trainerThreads: 1, ...options });
  onTestFinished(() => engine.close());
  return engine;
}

const promptOf = (index: number, length = 8 + index) => Int32Array.from({ length }, (_, t) => (index * 31 + t * 17) % 30);

async function sample(engine: Engine, policy: PolicyVersion, index: number, length?: number) {
  const tokens: { id: number; logprob: number }[] = [];
  const params = { maxTokens: 6, temperature: 1, topP: 1, topK: 0, seed: BigInt(index), stopTokenIds: [], topLogprobs: 0 };
  for await (const { id, logprob } of engine.sample(policy, promptOf(index, length), params)) tokens.push({ id, logprob });
  return tokens;
}

/** Trains an adapter for one step and publishes it. */
async function adapted(engine: Engine) {
  const model = await engine.createModel({ base: "base", seed: 1, lora });
  await engine.forwardBackward(model, ROWS, { kind: "cross-entropy" });
  await engine.optimStep(model, { learningRate: 1e-2 });
  return { model, policy: await engine.publish(model) };
}

/** Differences of the log-probabilities of sampled tokens from the trainer's; first tokens, which come from prompts, apart. */
async function mismatch(engine: Engine, { model, policy }: Awaited<ReturnType<typeof adapted>>) {
  const sampled = await Promise.all(Array.from({ length: 5 }, (_, index) => sample(engine, policy, index)));
  const rows = sampled.map((tokens, index): Row => {
    const all = Int32Array.of(...promptOf(index), ...tokens.map(({ id }) => id));
    return { tokens: all, weights: new Float32Array(all.length).fill(1, promptOf(index).length) };
  });
  const trained = await engine.forward(model, rows);
  const [first, others]: [number[], number[]] = [[], []];
  sampled.forEach((tokens, index) =>
    tokens.forEach(({ logprob }, t) => (t === 0 ? first : others).push(Math.abs(logprob - trained[index]![promptOf(index).length + t]!))),
  );
  return { sampled, first: Math.max(...first), others: Math.max(...others) };
}

/** Trains all parameters for one step, and samples. */
async function trainedWhole(options: Partial<OnnxEngineOptions>) {
  const engine = await start(TIED, options);
  const model = await engine.createModel({ base: "base", seed: 1 });
  const { logprobs } = await engine.forwardBackward(model, ROWS, loss);
  await engine.optimStep(model, { learningRate: 1e-2 });
  return { logprobs, tokens: await sample(engine, await engine.publish(model), 2) };
}

/** Log-probabilities of an adapter on random weights. */
async function fresh(options: Partial<OnnxEngineOptions>): Promise<number[]> {
  const engine = await start(TIED, options);
  return (await engine.forward(await engine.createModel({ base: "base", seed: 1, fresh: true, lora }), ROWS)).flatMap((row) => [...row]);
}

/** Results in float32, with which those in both precisions are compared. */
const inFloat32: { whole?: ReturnType<typeof trainedWhole>; fresh?: ReturnType<typeof fresh> } = {};

describe.each(["int4", "int8"] as const)("%s weights", (weightPrecision) => {
  test.each([
    ["tied head", TIED],
    ["shipped model", SHIPPED],
    ["separate head", SEPARATE],
  ])("%s: sampler and trainer agree, and a row has the same bits in a batch, alone and with a cached prefix", async (_, directory) => {
    const engine = await start(directory, { weightPrecision });
    const own = await adapted(engine);
    const { sampled, first, others } = await mismatch(engine, own);
    expect(Math.max(first, others)).toBeLessThan(1e-4);
    for (const index of [0, 4]) expect(await sample(engine, own.policy, index)).toEqual(sampled[index]);
    const uncached = await start(directory, { weightPrecision, prefixCacheBytes: 0 });
    const same = await adapted(uncached);
    const long = 40;
    const [once, again] = [await sample(engine, own.policy, 7, long), await sample(engine, own.policy, 7, long)];
    expect(again).toEqual(once);
    expect(await sample(uncached, same.policy, 7, long)).toEqual(once);
    expect(engine.devices!()).toEqual([{ name: "cpu", adapter: null, weightPrecision, rolloutPrecision: "float32" }]);
  });

  test("in rollouts with int8, prompts are float32, and each row has the same bits in a batch and alone", async () => {
    const engine = await start(SHIPPED, { weightPrecision, rolloutPrecision: "int8" });
    const own = await adapted(engine);
    const { sampled, first, others } = await mismatch(engine, own);
    expect(first).toBeLessThan(1e-4);
    expect(others).toBeGreaterThan(1e-4);
    expect(others).toBeLessThan(0.2);
    expect(await sample(engine, own.policy, 3)).toEqual(sampled[3]);
  });

  test("a model with all parameters trained starts from the float32 weights of the files and has the bits of an engine in float32", async () => {
    expect(await trainedWhole({ weightPrecision })).toEqual(await (inFloat32.whole ??= trainedWhole({})));
  });

  test("an adapter on random weights is computed on weights in blocks, too", async () => {
    const difference = worst(await fresh({ weightPrecision }), await (inFloat32.fresh ??= fresh({})));
    expect(difference).toBeGreaterThan(1e-6);
    expect(difference).toBeLessThan(weightPrecision === "int4" ? 4 : 0.2);
  });
});

describe("a model of two data-parallel halves", () => {
  test("has the same bits with one thread and with a helper thread", async () => {
    const rows = Array.from({ length: 24 }, (_, index): Row => {
      const tokens = Int32Array.from({ length: 60 }, (__, t) => (index * 31 + t * 17) % 500);
      return { tokens, weights: new Float32Array(60).fill(1 / 60, 1) };
    });
    const computed = async (trainerThreads: number) => {
      const engine = await start(SHIPPED, { weightPrecision: "int4", trainerThreads });
      const model = await engine.createModel({ base: "base", seed: 1, lora });
      const results = [];
      for (let step = 0; step < 2; step++) {
        results.push((await engine.forwardBackward(model, rows, { kind: "cross-entropy" })).metrics.loss);
        results.push((await engine.optimStep(model, { learningRate: 1e-2 })).gradNorm);
      }
      return results;
    };
    expect(await computed(2)).toEqual(await computed(1));
  });
});

test("a large model in int4 has the same bits with any number of threads, and its trainer agrees", async () => {
  const directory = await scratch();
  const config = JSON.parse(await readFile(join(SHIPPED, "config.json"), "utf8")) as object;
  const shape = { hidden_size: 320, intermediate_size: 640, vocab_size: 50_000, num_hidden_layers: 2, initializer_range: 0.1 };
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, ...shape }));
  await writeRandomWeights(directory);
  const found: unknown[] = [];
  for (const threads of [1, 2]) {
    const engine = await start(directory, { weightPrecision: "int4", samplerThreads: threads, trainerThreads: threads });
    const base = await engine.loadPolicy({ base: "base" });
    const own = await adapted(engine);
    const { sampled, first, others } = await mismatch(engine, own);
    expect(Math.max(first, others)).toBeLessThan(1e-4);
    const norm = (await engine.forwardBackward(own.model, ROWS, loss), await engine.optimStep(own.model, { learningRate: 1e-3 })).gradNorm;
    const together = await Promise.all(Array.from({ length: 5 }, (_, index) => sample(engine, base, index)));
    expect(await sample(engine, base, 3)).toEqual(together[3]);
    found.push({ sampled, together, norm });
    await engine.close();
  }
  expect(found[1]).toEqual(found[0]);
}, 120_000);
