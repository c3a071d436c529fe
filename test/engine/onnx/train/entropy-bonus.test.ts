import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { isLarge } from "../../../../src/engine/onnx/model/size.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../../../src/engine/onnx/model/safetensors.ts";
import { initialWeights, unpackTensors } from "../../../../src/engine/onnx/model/weights.ts";
import { gradientGraph } from "../../../../src/engine/onnx/train/gradient-graph.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import type { PolicyLoss, Row } from "../../../../src/engine/port.ts";
import { ROOT } from "../../../project/files.ts";
import { watchPrograms } from "../../../support/programs.ts";
import { startHelper } from "../../../support/start-helper.ts";

const { signal } = new AbortController();
const LLAMA = join(ROOT, "test/oracle/llama/model");
const bonus: PolicyLoss = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2, entropyCoefficient: 0.3 };

/** Rollouts of two prompts, of different lengths. */
const rows = Array.from({ length: 24 }, (_, index): Row => {
  const tokens = Int32Array.from({ length: 14 + ((index * 13) % 40) }, (_token, t) => (t < 9 ? index % 2 : index) * 5 + ((t * 7) % 40));
  const trained = (value: number) => Float32Array.from(tokens, (_token, t) => (t < 9 ? 0 : value));
  return { tokens, weights: trained(1 / 600), advantages: trained((index % 3) - 1), logprobs: trained(-3) };
}).map((row) => ({ ...row, tokens: row.tokens.map((token) => token % 48) }));

test("an entropy bonus has the same gradient in one batch, and in parallel halves of several batches", async () => {
  const results: Float32Array[] = [];
  for (const options of [{ maxBatchTokens: 4096 }, { maxBatchTokens: 128, startHelper }]) {
    const trainer = new Trainer({ threads: 2, ...options });
    const id = await trainer.createModel({ id: "llama", directory: LLAMA }, { seed: 1 });
    const { metrics } = await trainer.forwardBackward(id, rows, bonus, signal);
    results.push(trainer.gradients(id), Float32Array.of(metrics.loss, metrics.weightedEntropy!));
    await trainer.unload(id);
  }
  const [whole, sums, halves, sumsOfHalves] = results as [Float32Array, Float32Array, Float32Array, Float32Array];
  const scale = whole.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  expect(whole.reduce((worst, value, at) => Math.max(worst, Math.abs(value - halves[at]!)), 0) / scale).toBeLessThan(1e-5);
  sums.forEach((sum, at) => expect(Math.abs(sumsOfHalves[at]! / sum - 1)).toBeLessThan(1e-4));
});

/** Returns a number in ±√3 that depends on the index alone, with deviation 1. */
function hashed(index: number): number {
  let bits = Math.imul(index + 1, 0x9e3779b1);
  bits = Math.imul(bits ^ (bits >>> 15), 0x85ebca77);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae3d);
  return 2 * Math.sqrt(3) * (((bits ^ (bits >>> 16)) >>> 0) / 2 ** 32 - 0.5);
}

test("an entropy bonus changes a large model's loss as its gradient says; its graphs are freed between steps", async () => {
  const programs = watchPrograms();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => {
    vi.useRealTimers();
  });
  const directory = await mkdtemp(join(tmpdir(), "whetstone-entropy-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const shipped = JSON.parse(await readFile(join(ROOT, "models/whetstone-tiny/config.json"), "utf8")) as object;
  const shape = { intermediate_size: 24_000, num_hidden_layers: 2, initializer_range: 0.1 };
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...shipped, ...shape }));
  const config = await readModelConfig(directory);
  expect(isLarge(config)).toBe(true);
  const layout = baseLayout(config);
  const flat = initialWeights(config, layout, hashed);
  await writeSafetensors(join(directory, "model.safetensors"), unpackTensors(flat, layout));
  const some = rows.slice(0, 2).map((row) => ({ ...row, advantages: row.advantages!.map(() => 0) }));
  const loss = { ...bonus, entropyCoefficient: 30 };
  const rate = 1e-6;
  const trainer = new Trainer({ threads: 2 });
  const id = await trainer.createModel({ id: "large", directory }, { seed: 1 });
  const { metrics: before } = await trainer.forwardBackward(id, some, loss, signal);
  const slope = trainer.gradients(id).reduce((sum, value) => sum + Math.abs(value), 0);
  // Adam's first step moves every weight by the rate against the sign of its gradient, so the loss by `−rate · Σ|g|`.
  await trainer.optimStep(id, { learningRate: rate, epsilon: 1e-14 });
  expect(programs.released()).toBe(0);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(programs.released()).toBe(1);
  const { metrics: after } = await trainer.forwardBackward(id, some, loss, signal);
  expect(Math.abs((before.loss - after.loss) / rate / slope - 1)).toBeLessThan(1e-2);
});

test("the graph of a loss without an entropy bonus has no node or input for the bonus", async () => {
  const config = await readModelConfig(LLAMA);
  const shape = { prompts: null, packedRows: { count: 1, recompute: false } };
  const [off, on] = [false, true].map((hasEntropyBonus) => gradientGraph(config, "ppo", null, shape, { hasEntropyBonus }));
  expect(off!.inputs.map(({ name }) => name)).not.toContain("entropy_coef");
  expect(on!.inputs.map(({ name }) => name)).toContain("entropy_coef");
  expect(off!.nodes.length).toBeLessThan(on!.nodes.length);
});
