/** Sampling from large models, whose decode graphs hold their matrices. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createOnnxEngine } from "../../../../src/engine/index.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { isLarge } from "../../../../src/engine/onnx/model/size.ts";
import { decodeThreads, promptThreads } from "../../../../src/engine/onnx/sample/thread-counts.ts";
import { writeRandomWeights } from "../../../bench/random-weights.ts";
import type { Engine, ModelHandle, PolicyVersion, Row, SampledToken } from "../../../../src/engine/port.ts";

/** Rows of a batch: more than the runtime multiplies at once. */
const MANY = 16;

const SHIPPED = join(import.meta.dirname, "../../../../models/whetstone-tiny");

let directory: string;
let engine: Engine | undefined;
beforeEach(async () => (directory = await mkdtemp(join(tmpdir(), "whetstone-large-"))));
afterEach(async () => {
  await engine?.close();
  engine = undefined;
  await rm(directory, { recursive: true, force: true });
});

/** The shipped model's shape with so many words that it counts as large, random weights. */
async function largeShape(isTied: boolean): Promise<void> {
  const config = JSON.parse(await readFile(join(SHIPPED, "config.json"), "utf8")) as object;
  const shape = isTied ? { vocab_size: 123_000 } : { vocab_size: 62_000, tie_word_embeddings: false };
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, ...shape, num_hidden_layers: 2, initializer_range: 0.1 }));
}

/** A step of training: before the first one an adapter adds nothing. */
async function takeStep(model: ModelHandle): Promise<void> {
  const row: Row = { tokens: promptOf(3, 12), weights: new Float32Array(12).fill(1, 1) };
  await engine!.forwardBackward(model, [row], { kind: "cross-entropy" });
  await engine!.optimStep(model, { learningRate: 1e-2 });
}

const promptOf = (index: number, length: number) =>
  Int32Array.from({ length }, (_, t) => (index * 31 + t * 17 + ((index * t) % 7)) % 50_000);

async function sample(policy: PolicyVersion, index: number, length = 8 + index): Promise<SampledToken[]> {
  const tokens: SampledToken[] = [];
  const params = { maxTokens: 3 + (index % 2), temperature: 1, topP: 1, topK: 0, seed: BigInt(index), stopTokenIds: [], topLogprobs: 1 };
  for await (const token of engine!.sample(policy, promptOf(index, length), params)) tokens.push(token);
  return tokens;
}

const numbers = (tokens: readonly SampledToken[]) => tokens.map(({ id, logprob, top }) => ({ id, logprob, top }));

/** `WHETSTONE_LARGE_MODELS=all` adds the cases without an adapter. */
const WITHOUT_ADAPTER = [
  { label: "tied embeddings", isTied: true, lora: undefined },
  { label: "a head of its own", isTied: false, lora: undefined },
];

describe.each([
  ...(process.env["WHETSTONE_LARGE_MODELS"] === "all" ? WITHOUT_ADAPTER : []),
  { label: "an adapter", isTied: true, lora: { rank: 4 } },
])("a large model with $label", ({ isTied, lora }) => {
  test("is sampled with the trainer's log-probabilities, bit-identical alone and in a batch", async () => {
    await largeShape(isTied);
    expect(isLarge(await readModelConfig(directory))).toBe(true);
    engine = await createOnnxEngine({ baseModels: { large: directory }, trainerThreads: 1 });
    if (lora) await writeRandomWeights(directory);
    const model = await engine.createModel({ base: "large", seed: 1, fresh: lora === undefined, lora });
    await takeStep(model);
    const policy = await engine.publish(model);
    const before = await engine.createModel({ base: "large", seed: 1, fresh: lora === undefined, lora });
    await takeStep(before);

    // Of an adapter another one, which runs in the same batch.
    await takeStep(model);
    const later = await engine.publish(model);
    const policyOf = (index: number) => (index === MANY ? later : policy);

    const together = await Promise.all(Array.from({ length: MANY + 3 }, (_, index) => sample(policyOf(index), index)));
    for (const index of [0, MANY, MANY + 2]) expect(numbers(await sample(policyOf(index), index))).toEqual(numbers(together[index]!));

    const rows = together.slice(0, 4).map((tokens, index): Row => {
      const prompt = promptOf(index, 8 + index);
      const all = Int32Array.of(...prompt, ...tokens.map(({ id }) => id));
      return { tokens: all, weights: new Float32Array(all.length).fill(1, prompt.length) };
    });
    const logprobs = await engine.forward(before, rows);
    together.slice(0, 4).forEach((tokens, index) => {
      const trained = logprobs[index]!.subarray(8 + index);
      expect(trained).toHaveLength(tokens.length);
      tokens.forEach(({ logprob }, t) => expect(Math.abs(logprob - trained[t]!)).toBeLessThan(2e-5));
    });
  }, 120_000);
});

describe.each([
  { label: "two key heads", lora: undefined },
  { label: "an adapter", lora: { rank: 32 } },
])("a large model with $label", ({ lora }) => {
  test("is sampled bit-identical for every thread count, alone and in a batch", async () => {
    const config = JSON.parse(await readFile(join(SHIPPED, "config.json"), "utf8")) as object;
    const wide = { hidden_size: 320, intermediate_size: 640, vocab_size: 50_000, num_hidden_layers: 2, initializer_range: 0.1 };
    await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, ...wide }));
    const read = await readModelConfig(directory);
    expect([decodeThreads(read, lora !== undefined, 8), promptThreads(read, lora !== undefined, 8)]).toEqual(lora ? [2, 2] : [4, 3]);
    expect(decodeThreads({ ...read, kvHeads: 1 }, false, 8)).toBe(2);
    const found: unknown[] = [];
    // With an adapter, at most two threads are used, so 4 runs with two.
    const threadCounts = [1, 4];
    for (const samplerThreads of threadCounts) {
      engine = await createOnnxEngine({ baseModels: { large: directory }, samplerThreads, trainerThreads: 1, prefixCacheBytes: 0 });
      if (samplerThreads === 1) await writeRandomWeights(directory);
      const model = await engine.createModel({ base: "large", seed: 1, lora });
      if (lora) await takeStep(model);
      const policy = await engine.publish(model);
      const together = await Promise.all(Array.from({ length: MANY + 3 }, (_, index) => sample(policy, index, 8 + 6 * index)));
      const alone = [];
      for (const index of [0, MANY]) alone.push(await sample(policy, index, 8 + 6 * index));
      expect(alone.map(numbers)).toEqual([numbers(together[0]!), numbers(together[MANY]!)]);
      found.push(together.map(numbers));
      await engine.close();
      engine = undefined;
    }
    expect(found).toHaveLength(threadCounts.length);
    for (const other of found) expect(other).toEqual(found[0]);
  }, 120_000);
});
