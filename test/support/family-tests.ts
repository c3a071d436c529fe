/** Small random models of every family, as transformers saves them, against what transformers and PEFT compute with them, on any device. */
import { readdirSync } from "node:fs";
import { copyFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { gunzipSync } from "node:zlib";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { createOnnxEngine } from "../../src/engine/index.ts";
import type { DeviceChoice } from "../../src/engine/engine-info.ts";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { adapterLayout, baseLayout, type Layout } from "../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../src/engine/onnx/model/safetensors.ts";
import { readSafetensors } from "./safetensors.ts";
import { ADAPTER_FILE } from "../../src/engine/onnx/model/peft.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import type { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import { verifyWeights } from "../../src/engine/onnx/model/weights.ts";
import type { Engine, PolicyVersion, Row, SampledToken } from "../../src/engine/port.ts";

interface Computed {
  logprobs: number[][];
  /** The likeliest continuation of the second row: each token with the distribution it came from. */
  greedy: { token: number; logprobs: number[] }[];
  loss: number;
  gradients: Record<string, number[]>;
}

/** Values that `families.py` wrote. */
interface Expected {
  rows: number[][];
  weights: number[][];
  logprobs: Computed["logprobs"];
  greedy: Computed["greedy"];
  full: Pick<Computed, "loss" | "gradients">;
  lora: Computed;
}

/** Rank and alpha of the adapters in the fixtures. */
const LORA = { rank: 3, alpha: 5 };
/** Names of the families with fixtures. */
export const FAMILIES = readdirSync(join(import.meta.dirname, "../oracle/families"));

const fixture = (name: string, part: string) => join(import.meta.dirname, "../oracle/families", name, part);
const signal = new AbortController().signal;
let scratch: string;
let engine: Engine;

/** Trainer of a device in this process. */
type AnyTrainer = Pick<Trainer, "createModel" | "forward" | "forwardBackward" | "saveState"> & {
  gradients(id: string): Float32Array | Promise<Float32Array>;
};

/** Device under test. */
export interface FamilySubject {
  readonly device: DeviceChoice;
  newTrainer(): AnyTrainer;
  readonly timeoutMs: number;
}

const expectedOf = async (name: string): Promise<Expected> =>
  JSON.parse(gunzipSync(await readFile(fixture(name, "expected.json.gz"))).toString()) as Expected;

function rowsOf({ rows, weights }: Expected, weigh: (weight: number, t: number) => number = (weight) => weight): Row[] {
  return rows.map((tokens, i) => ({ tokens: Int32Array.from(tokens), weights: Float32Array.from(weights[i]!, weigh) }));
}

const everyToken = (_weight: number, t: number): number => (t === 0 ? 0 : 1);

/** Largest difference, relative to the largest expected magnitude. */
function relativeError(actual: ArrayLike<number>, wanted: readonly number[]): number {
  expect(actual.length).toBe(wanted.length);
  const scale = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 1e-4);
  return wanted.reduce((worst, x, i) => Math.max(worst, Math.abs(x - actual[i]!)), 0) / scale;
}

function expectGradients(flat: Float32Array, layout: Layout, wanted: Record<string, number[]>): void {
  const tensors = unpackTensors(flat, layout);
  expect(tensors.map(({ name }) => name).toSorted()).toEqual(Object.keys(wanted).toSorted());
  for (const { name, data } of tensors) expect(relativeError(data, wanted[name]!), name).toBeLessThan(3e-5);
}

/** A saved state of an adapter that holds PEFT's own file. */
async function adapterState(name: string): Promise<string> {
  const state = await mkdtemp(join(scratch, "adapter-"));
  const model = await engine.createModel({ base: name, lora: LORA, seed: 0 });
  await engine.saveState(model, state);
  await engine.unload(model);
  await copyFile(fixture(name, `adapter/${ADAPTER_FILE}`), join(state, ADAPTER_FILE));
  return state;
}

type Tensors = Awaited<ReturnType<typeof readSafetensors>>["tensors"];

/** `W + (alpha / rank) · B·A` of a tensor that has an adapter; files hold `W [out, in]`, `A [rank, in]`, `B [out, rank]`. */
function merged(key: string, { shape, data }: { shape: readonly number[]; data: Float32Array }, adapter: Tensors): Float32Array {
  const part = (matrix: "A" | "B") => adapter.get(`base_model.model.${key.replace(/weight$/, `lora_${matrix}.weight`)}`)?.data;
  const [a, b, width] = [part("A"), part("B"), shape[1]!];
  if (!a || !b) return data;
  return data.map((weight, at) => {
    const [out, column] = [Math.floor(at / width), at % width];
    let delta = 0;
    for (let r = 0; r < LORA.rank; r++) delta += b[out * LORA.rank + r]! * a[r * width + column]!;
    return weight + (LORA.alpha / LORA.rank) * delta;
  });
}

/** Continues the second row greedily and holds every step to the expected distribution. */
async function expectGreedy(policy: PolicyVersion, { rows }: Expected, steps: Computed["greedy"]): Promise<void> {
  const params = { maxTokens: steps.length, temperature: 0, topP: 1, topK: 0, seed: 0n, stopTokenIds: [], topLogprobs: 20 };
  const sampled: SampledToken[] = [];
  for await (const token of engine.sample(policy, Int32Array.from(rows[1]!), params, { signal })) sampled.push(token);
  expect(sampled.map(({ id }) => id)).toEqual(steps.map(({ token }) => token));
  sampled.forEach(({ top }, step) => {
    const wanted = steps[step]!.logprobs;
    expect(top).toHaveLength(20);
    expect(
      relativeError(
        top.map(({ logprob }) => logprob),
        top.map(({ id }) => wanted[id]!),
      ),
    ).toBeLessThan(2e-5);
  });
}

/** Declares the tests of some families on a device. */
export function familyTests(families: readonly string[], { device, newTrainer, timeoutMs }: FamilySubject): void {
  beforeAll(async () => {
    scratch = await mkdtemp(join(tmpdir(), "whetstone-families-"));
    engine = await createOnnxEngine({
      baseModels: Object.fromEntries(families.map((name) => [name, fixture(name, "model")])),
      trainerThreads: 1,
      device,
    });
  });
  afterAll(async () => {
    await engine.close();
    await rm(scratch, { recursive: true, force: true });
  });

  describe.each(families)("%s", { timeout: timeoutMs }, (name) => {
    test("every parameter: log-probabilities, loss and gradients", async () => {
      const expected = await expectedOf(name);
      const trainer = newTrainer();
      const id = await trainer.createModel({ id: name, directory: fixture(name, "model") }, { seed: 0 });
      const logprobs = await trainer.forward(id, rowsOf(expected, everyToken), signal);
      logprobs.forEach((row, i) => expect(relativeError(row, expected.logprobs[i]!)).toBeLessThan(1e-5));
      const { metrics } = await trainer.forwardBackward(id, rowsOf(expected), { kind: "cross-entropy" }, signal);
      expect(relativeError([metrics.loss], [expected.full.loss])).toBeLessThan(1e-5);
      expectGradients(await trainer.gradients(id), baseLayout(await readModelConfig(fixture(name, "model"))), expected.full.gradients);
    });

    test("an adapter of PEFT's: log-probabilities, loss and gradients, and the same file back", async () => {
      const { lora, ...expected } = await expectedOf(name);
      const trainer = newTrainer();
      const from = await adapterState(name);
      const id = await trainer.createModel({ id: name, directory: fixture(name, "model") }, { lora: LORA, from, seed: 0 });
      const rows = { ...expected, lora };
      const logprobs = await trainer.forward(id, rowsOf(rows, everyToken), signal);
      logprobs.forEach((row, i) => expect(relativeError(row, lora.logprobs[i]!)).toBeLessThan(1e-5));
      const { metrics } = await trainer.forwardBackward(id, rowsOf(rows), { kind: "cross-entropy" }, signal);
      expect(relativeError([metrics.loss], [lora.loss])).toBeLessThan(1e-5);
      const config = await readModelConfig(fixture(name, "model"));
      expectGradients(await trainer.gradients(id), adapterLayout(config, LORA.rank), lora.gradients);

      const saved = await mkdtemp(join(scratch, "saved-"));
      await trainer.saveState(id, saved);
      const [ours, theirs] = await Promise.all([saved, fixture(name, "adapter")].map((path) => readSafetensors(join(path, ADAPTER_FILE))));
      expect(ours!.tensors).toEqual(theirs!.tensors);
      const settings = async (path: string) =>
        JSON.parse(await readFile(join(path, "adapter_config.json"), "utf8")) as Record<string, unknown>;
      const [written, known] = [await settings(saved), await settings(fixture(name, "adapter"))];
      expect((written["target_modules"] as string[]).toSorted()).toEqual(known["target_modules"]);
      for (const key of ["peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "bias", "fan_in_fan_out", "base_model_name_or_path"])
        expect(written[key], key).toEqual(known[key]);
    });

    test("decoding with the cache, without and with the adapter", async () => {
      const expected = await expectedOf(name);
      await expectGreedy(await engine.loadPolicy({ base: name }), expected, expected.greedy);
      await expectGreedy(await engine.loadPolicy({ base: name, state: await adapterState(name) }), expected, expected.lora.greedy);
    });

    test("the adapter merged into the base gives what both give together, and training it leaves the base as it was", async () => {
      const expected = await expectedOf(name);
      const state = await mkdtemp(join(scratch, "merged-"));
      const model = await engine.createModel({ base: name, seed: 0 });
      await engine.saveState(model, state);
      const path = join(state, "model.safetensors");
      const { tensors } = await readSafetensors(path);
      const adapter = (await readSafetensors(fixture(name, `adapter/${ADAPTER_FILE}`))).tensors;
      await rm(path);
      await writeSafetensors(
        path,
        [...tensors].map(([key, tensor]) => ({ name: key, ...tensor, data: merged(key, tensor, adapter) })),
      );
      await expectGreedy(await engine.loadPolicy({ base: name, state }), expected, expected.lora.greedy);

      const trained = await engine.createModel({ base: name, lora: LORA, from: await adapterState(name), seed: 0 });
      await engine.forwardBackward(trained, rowsOf(expected), { kind: "cross-entropy" });
      await engine.optimStep(trained, { learningRate: 0.1, beta1: 0.9, beta2: 0.99, weightDecay: 0.1, maxGradNorm: 1 });
      const fresh = await engine.createModel({ base: name, seed: 0 });
      const logprobs = await engine.forward(fresh, rowsOf(expected, everyToken));
      logprobs.forEach((row, i) => expect(relativeError(row, expected.logprobs[i]!)).toBeLessThan(1e-5));
      await Promise.all([model, trained, fresh].map((one) => engine.unload(one)));
    });

    test("trained weights are saved under the names they came with and give the same model", async () => {
      const expected = await expectedOf(name);
      const state = await mkdtemp(join(scratch, "full-"));
      const model = await engine.createModel({ base: name, seed: 0 });
      onTestFinished(() => engine.unload(model));
      await engine.saveState(model, state);
      const { tensors } = await readSafetensors(join(state, "model.safetensors"));
      expect([...tensors.keys()].toSorted()).toEqual(Object.keys(expected.full.gradients).toSorted());
      await expectGreedy(await engine.loadPolicy({ base: name, state }), expected, expected.greedy);
      await verifyWeights(fixture(name, "model"), await readModelConfig(fixture(name, "model")));
    });
  });
}
