/** Batches with few trained tokens: for large models they are not padded, and no bit depends on threads. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ModelConfig, readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { adapterLayout, baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { rotaryTables } from "../../../../src/engine/onnx/model/rope.ts";
import { BaseWeights } from "../../../../src/engine/onnx/model/base-weights.ts";
import { float32Weights } from "../../../../src/engine/onnx/model/stored-weights.ts";
import {
  type BatchLimits,
  batchLimits,
  batchThreads,
  minTrainedEntries,
  planBatches,
  shortLimits,
  type TrainBatch,
} from "../../../../src/engine/onnx/train/batch.ts";
import { type BatchModel, BatchRunner } from "../../../../src/engine/onnx/train/batch-runner.ts";
import type { BatchResult } from "../../../../src/engine/onnx/train/batch-inputs.ts";
import { collectResults } from "../../../../src/engine/onnx/train/summary.ts";
import type { Row } from "../../../../src/engine/port.ts";
import { zip } from "../../../../src/base/util/values.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import { ROOT } from "../../../project/files.ts";

let directory: string;
let config: ModelConfig;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "whetstone-wide-"));
  const shipped = JSON.parse(await readFile(join(ROOT, "models/whetstone-tiny/config.json"), "utf8")) as object;
  const wide = { hidden_size: 320, intermediate_size: 1100, num_attention_heads: 10, num_hidden_layers: 2 };
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...shipped, ...wide }));
  config = await readModelConfig(directory);
});
afterAll(() => rm(directory, { recursive: true, force: true }));

/** Returns random values, the same for every call. */
const random = (length: number, seed: bigint) => Float32Array.from({ length }, (_, i) => (uniform(seed, i) - 0.5) * 0.2);

/** Base weights of all models: drawing their millions of values takes longer than the gradients of a batch. */
let base: (BatchModel["base"] & { readonly flat: Float32Array }) | undefined;

function modelOf(rank: number | null): BatchModel {
  base ??= createBase();
  const { flat, layout } = base;
  if (rank === null) return { base, lora: null, layout, parameters: flat };
  const adapters = adapterLayout(config, rank);
  return { base, lora: { rank, alpha: 2 * rank }, layout: adapters, parameters: random(adapters.length, 2n) };
}

function createBase(): NonNullable<typeof base> {
  const layout = baseLayout(config);
  const flat = random(layout.length, 1n);
  return { config, layout, weights: BaseWeights.kept(float32Weights(layout, flat)), rotary: rotaryTables(config), flat };
}

/** Rows of which so many tokens are trained in all. */
function rowsWith(trained: number): Row[] {
  const count = Math.min(4, trained);
  return Array.from({ length: count }, (_, row) => {
    const own = Math.floor(trained / count) + (row < trained % count ? 1 : 0);
    const tokens = Int32Array.from({ length: 120 }, (__, t) => (row * 31 + t * 17 + ((row * t) % 7)) % 500);
    return { tokens, weights: new Float32Array(120).fill(1 / trained, 120 - own) };
  });
}

async function gradients(model: BatchModel, rows: readonly Row[], threads: number): Promise<Float32Array> {
  const sum = new Float32Array(model.layout.length);
  const runner = new BatchRunner(threads);
  for (const batch of planBatches(rows, batchLimits(config))) await runner.run(model, rows, batch, { kind: "cross-entropy" }, sum);
  return sum;
}

describe.each([
  { label: "every parameter", rank: null },
  { label: "an adapter", rank: 8 },
])("$label", ({ rank }) => {
  test.each([1, 2, 5, 37, 130])("%i trained tokens: gradients are bit-identical with 1, 2 and 4 threads", async (trained) => {
    const model = modelOf(rank);
    const rows = rowsWith(trained);
    const one = await gradients(model, rows, 1);
    expect(one.some((each) => each !== 0)).toBe(true);
    for (const threads of [2, 4]) expect(Buffer.compare(bytes(await gradients(model, rows, threads)), bytes(one))).toBe(0);
  });
});

describe.each([
  { label: "every parameter", rank: null },
  { label: "an adapter", rank: 8 },
])("$label", ({ rank }) => {
  test.each([{ lengths: [2] }, { lengths: [3] }, { lengths: [64] }, { lengths: [37, 90] }, { lengths: [7, 7, 7, 100] }])(
    "log-probabilities of rows of $lengths tokens are bit-identical with and without padding",
    async ({ lengths }) => {
      const model = modelOf(rank);
      const rows = lengths.map((length, row): Row => {
        const tokens = Int32Array.from({ length }, (_, t) => (row * 31 + t * 17 + ((row * t) % 7)) % 500);
        return { tokens, weights: new Float32Array(length).fill(1, 1) };
      });
      const limits = batchLimits(config);
      const logprobsOf = async (planned: BatchLimits) => {
        const results = new Map<TrainBatch, BatchResult>();
        const threads = new Set<number>();
        for (const batch of planBatches(rows, planned)) {
          const ofBatch = batchThreads(batch, 4);
          threads.add(ofBatch);
          results.set(batch, await new BatchRunner(ofBatch).run(model, rows, batch, null, null));
        }
        return { threads: [...threads], logprobs: collectResults(rows, results, null).logprobs };
      };
      const short = await logprobsOf(shortLimits(rows, limits, 2));
      const padded = await logprobsOf(limits);
      expect([short.threads, padded.threads]).toEqual([[1], [4]]);
      expect(short.logprobs.map((each) => each.length)).toEqual(lengths);
      zip(short.logprobs, padded.logprobs).forEach(([one, other]) => expect(Buffer.compare(bytes(one), bytes(other))).toBe(0));
    },
  );
});

test("a pass of many tokens has the limits of every batch", () => {
  const limits = batchLimits(config);
  const row = { tokens: new Int32Array(161), weights: new Float32Array(161).fill(1, 1) };
  expect(shortLimits([row], limits, 2)).toBe(limits);
  expect(shortLimits([row], limits, 1)).not.toBe(limits);
});

test("pads batches of narrow models and adapters, not of wide models", () => {
  expect(minTrainedEntries(config, false)).toBe(2);
  expect(minTrainedEntries(config, true)).toBe(320);
  for (const narrow of [{ hiddenSize: 288 }, { innerSize: 256 }, { heads: 4 }, { vocabularySize: 300 }])
    expect(minTrainedEntries({ ...config, ...narrow }, false)).toBe(320);
});

test("gradients of a batch equal the sum over its rows", async () => {
  const model = modelOf(null);
  const rows = rowsWith(4);
  const together = await gradients(model, rows, 1);
  const apart = new Float32Array(together.length);
  for (const row of rows) (await gradients(model, [row], 1)).forEach((each, at) => (apart[at]! += each));
  const largest = together.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
  expect(together.every((each, at) => Math.abs(each - apart[at]!) <= 1e-5 * largest)).toBe(true);
});

function bytes(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
