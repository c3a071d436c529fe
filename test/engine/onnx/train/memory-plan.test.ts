/** Memory plans: their rule, and gradients of graphs in slices, in order and with recomputed layers. */
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ModelConfig, readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { adapterLayout, baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { rotaryTables } from "../../../../src/engine/onnx/model/rope.ts";
import { batchLimits, deviceBatchLimits, planBatches } from "../../../../src/engine/onnx/train/batch.ts";
import { deviceGraphShape, probabilityBytes } from "../../../../src/engine/onnx/train/query-blocks.ts";
import { selectAndPlan } from "../../../../src/engine/onnx/train/batch-inputs.ts";
import { type BatchModel, BatchRunner } from "../../../../src/engine/onnx/train/batch-runner.ts";
import { gradientGraph } from "../../../../src/engine/onnx/train/gradient-graph.ts";
import { deviceBudget, type MemoryPlan, memoryPlan, WHOLE } from "../../../../src/engine/onnx/train/memory-plan.ts";
import type { Row } from "../../../../src/engine/port.ts";
import { BaseWeights } from "../../../../src/engine/onnx/model/base-weights.ts";
import { float32Weights } from "../../../../src/engine/onnx/model/stored-weights.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import { ROOT } from "../../../project/files.ts";
import { type Array64, array64, interpret } from "../../../support/graph-interpreter.ts";

const FAMILIES = join(ROOT, "test/oracle/families");
const families = await readdir(FAMILIES);

const SIZES: Record<string, number> = { rows: 2, time: 4, flat: 8, selected: 6, table_positions: 8 };

/** Float64 outputs of a gradient graph under a plan, from inputs that depend on nothing but their names. */
function outputs(config: ModelConfig, rank: number | null, plan: MemoryPlan): Record<string, Array64> {
  const shape = { prompts: null, packedRows: { count: 1, recompute: true } };
  const graph = gradientGraph(config, "ppo", rank, shape, { hasEntropyBonus: true, plan });
  const sizes: Record<string, number> = { ...SIZES, grouped: 4 * (config.heads / config.kvHeads), slice: 6 / plan.headSlices };
  // Slices of one input continue its values.
  const offsets = new Map<string, number>();
  const feeds = Object.fromEntries(
    graph.inputs.map(({ name, shape: named, dtype }) => {
      const dims = named.map((dim) => (typeof dim === "number" ? dim : sizes[dim]!));
      const length = dims.reduce((a, b) => a * b, 1);
      const stem = /^(targets|weights|advantages|old|known)\d$/.exec(name)?.[1] ?? name;
      const seed = BigInt([...stem].reduce((sum, char) => (sum * 31 + char.codePointAt(0)!) % 1_000_003, 7));
      const offset = offsets.get(stem) ?? 0;
      offsets.set(stem, offset + length);
      const limit = stem === "positions" ? 4 : stem === "selected" ? 8 : config.vocabularySize;
      const value = (i: number) => uniform(seed, offset + i);
      const data = Float64Array.from({ length }, (_, i) => (dtype === "int64" ? Math.floor(value(i) * limit) : value(i) - 0.5));
      return [name, array64(dims, data)];
    }),
  );
  return interpret(graph, feeds);
}

describe.each(families)("%s", (family) => {
  test.each([
    { label: "slices", plan: { headSlices: 3, isOrdered: true, recomputedLayers: 0 } },
    { label: "slices and recomputed layers", plan: { headSlices: 2, isOrdered: true, recomputedLayers: 1 } },
  ])("$label: same results and gradients as the whole graph", async ({ plan }) => {
    const config = await readModelConfig(join(FAMILIES, family, "model"));
    for (const rank of [null, 2]) {
      const whole = outputs(config, rank, WHOLE);
      const sliced = outputs(config, rank, plan);
      expect(Object.keys(sliced)).toEqual(Object.keys(whole));
      for (const [name, { shape, data }] of Object.entries(whole)) {
        expect(sliced[name]!.shape, name).toEqual(shape);
        const isClose = (each: number, i: number) => Math.abs(sliced[name]!.data[i]! - each) < 1e-10 * Math.max(1, Math.abs(each));
        expect(
          [...data.entries()].filter(([i, each]) => !isClose(each, i)),
          name,
        ).toEqual([]);
      }
    }
  });
});

/** Model with logits too large for one piece. */
let wide: ModelConfig;
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "whetstone-plan-"));
  const shipped = JSON.parse(await readFile(join(ROOT, "models/whetstone-tiny/config.json"), "utf8")) as object;
  const sizes = { vocab_size: 40_000, hidden_size: 320, intermediate_size: 320, num_attention_heads: 10, num_hidden_layers: 1 };
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...shipped, ...sizes }));
  wide = await readModelConfig(directory);
});
afterAll(() => rm(directory, { recursive: true, force: true }));

test("keeps whole what fits, and orders, slices and recomputes by bytes", async () => {
  const shipped = await readModelConfig(join(ROOT, "models/whetstone-tiny"));
  expect(memoryPlan(shipped, 1024, 2048)).toEqual(WHOLE);
  expect(memoryPlan(wide, 512, 100).headSlices).toBe(1);
  expect(memoryPlan(wide, 512, 480)).toEqual({ headSlices: 2, isOrdered: true, recomputedLayers: 0 });
  const deep = { ...wide, vocabularySize: 1024, hiddenSize: 1024, innerSize: 4096, layers: 16 };
  expect(memoryPlan(deep, 256, 256)).toEqual({ headSlices: 1, isOrdered: true, recomputedLayers: 0 });
  // 1.2 · 10⁹ bytes for 544 · 2²⁰: 0.53 must go, rounded up to an eighth.
  expect(memoryPlan(deep, 1024, 256)).toEqual({ headSlices: 1, isOrdered: true, recomputedLayers: 10 });
  // Narrow products have at least 320 rows.
  expect(memoryPlan({ ...wide, hiddenSize: 256 }, 1024, 1000).headSlices).toBe(2);
});

test.each([
  { name: "0.5 B", size: { hiddenSize: 896, innerSize: 4864, layers: 24, heads: 14 }, memory: 2e9, tokens: 1024, recomputed: 12 },
  { name: "0.5 B", size: { hiddenSize: 896, innerSize: 4864, layers: 24, heads: 14 }, memory: 8e9, tokens: 2048, recomputed: 0 },
  { name: "0.5 B", size: { hiddenSize: 896, innerSize: 4864, layers: 24, heads: 14 }, memory: 80e9, tokens: 4096, recomputed: 0 },
  { name: "3 B", size: { hiddenSize: 2048, innerSize: 11_008, layers: 36, heads: 16 }, memory: 8e9, tokens: 1024, recomputed: 18 },
  { name: "3 B", size: { hiddenSize: 2048, innerSize: 11_008, layers: 36, heads: 16 }, memory: 24e9, tokens: 1024, recomputed: 0 },
  { name: "3 B", size: { hiddenSize: 2048, innerSize: 11_008, layers: 36, heads: 16 }, memory: 80e9, tokens: 4096, recomputed: 0 },
])(
  "a device of $memory bytes: batches of $name parameters have up to $tokens tokens, with $recomputed recomputed layers",
  ({ size, memory, tokens, recomputed }) => {
    const config = { ...wide, ...size, vocabularySize: 151_936 };
    const budget = deviceBudget(memory);
    const rows = Array.from({ length: 32 }, (_, row): Row => {
      const of = Int32Array.from({ length: 1024 }, (__, t) => (row * 3100 + t * 167 + ((row * t) % 7)) % 1000);
      return { tokens: of, weights: new Float32Array(1024).fill(1, 1) };
    });
    const sizes = planBatches(rows, deviceBatchLimits(config, budget)).map(({ packedRows: { count, time } }) => count * time);
    expect(Math.max(...sizes)).toBe(tokens);
    const plan = memoryPlan(config, tokens, tokens, budget);
    expect(plan.recomputedLayers).toBe(recomputed);
    // Every adapter can bind a buffer of 128 MiB.
    expect((4 * config.vocabularySize * tokens) / plan.headSlices).toBeLessThanOrEqual(2 ** 27);
  },
);

test("a device keeps attention probabilities if they fit into memory besides the other kept activations", () => {
  const config = { ...wide, hiddenSize: 896, innerSize: 4864, layers: 24, heads: 14, vocabularySize: 151_936 };
  const packedRows = { count: 4, time: 1024, blocks: 2 };
  // Two blocks of 512 queries, which attend to 512 and 1,024 keys.
  const bytes = 4 * 24 * 14 * 4 * 512 * (512 + 1024);
  const batch = { groups: [], prompts: null, packedRows };
  expect(probabilityBytes(config, batch)).toBe(bytes);
  expect(deviceGraphShape(config, batch, bytes)).toEqual({ prompts: null, packedRows: { count: 2, recompute: false } });
  expect(deviceGraphShape(config, batch, bytes - 1)).toEqual({ prompts: null, packedRows: { count: 2, recompute: true } });
  const prompts = { count: 1, time: 1024, blocks: 2 };
  const sharing = { groups: [], prompts, packedRows: { count: 2, time: 512, blocks: 1 } };
  expect(probabilityBytes(config, sharing)).toBe(4 * 24 * 14 * (512 * (512 + 1024) + 2 * 512 * (1024 + 512)));
  expect(deviceGraphShape(config, sharing, Infinity)).toEqual({
    prompts: { count: 2, recompute: false },
    packedRows: { count: 1, recompute: false },
  });
});

test("the default memory of a device is 8 GB, with 3.5 GiB for kept activations and 4,096 tokens", () => {
  expect(deviceBudget()).toEqual(deviceBudget(8e9));
  expect(deviceBudget()).toMatchObject({ keptBytes: 3.5 * 2 ** 30, maxTokens: 4096 });
});

test.each([
  { label: "one slice", length: 46, slices: 1, entries: 45, multiple: 48 },
  { label: "two slices", length: 474, slices: 2, entries: 474, multiple: 480 },
])("$label: the number of trained tokens is padded to whole slices and to a given multiple", ({ length, slices, entries, multiple }) => {
  const rows: Row[] = [{ tokens: new Int32Array(length), weights: new Float32Array(length).fill(1, 1) }];
  const [batch] = planBatches(rows, batchLimits(wide));
  const count = (entryStep?: number) => {
    const { selection, plan } = selectAndPlan(wide, rows, batch!, { minEntries: 2, entryStep })!;
    expect(plan.headSlices).toBe(slices);
    expect(selection.count).toBe(length - 1);
    return selection.selected.length;
  };
  expect(count()).toBe(entries);
  expect(count(8)).toBe(multiple);
});

test.each([
  { label: "every parameter", rank: null },
  { label: "an adapter", rank: 4 },
])(
  "$label: gradients of a batch in slices equal the sum over its rows and are bit-identical with 1, 2 and 4 threads",
  { timeout: 120_000 },
  async ({ rank }) => {
    const layout = baseLayout(wide);
    const period = Float32Array.from({ length: 10_007 }, (_, i) => (uniform(1n, i) - 0.5) * 0.2);
    const random = (length: number, shift: number) => Float32Array.from({ length }, (_, i) => period[(i + shift) % period.length]!);
    const weights = random(layout.length, 0);
    const base = { config: wide, layout, weights: BaseWeights.kept(float32Weights(layout, weights)), rotary: rotaryTables(wide) };
    const adapters = adapterLayout(wide, 4);
    const model: BatchModel = rank
      ? { base, lora: { rank, alpha: 8 }, layout: adapters, parameters: random(adapters.length, 99) }
      : { base, lora: null, layout, parameters: weights };
    const rows = Array.from({ length: 2 }, (_, row): Row => {
      const tokens = Int32Array.from({ length: 240 }, (__, t) => (row * 3100 + t * 167 + ((row * t) % 7)) % wide.vocabularySize);
      return { tokens, weights: new Float32Array(240).fill(1 / 480, 1) };
    });
    const gradients = async (of: readonly Row[], threads: number) => {
      const sum = new Float32Array(model.layout.length);
      const runner = new BatchRunner(threads);
      const batches = planBatches(of, batchLimits(wide));
      expect(batches).toHaveLength(1);
      await runner.run(model, of, batches[0]!, { kind: "cross-entropy" }, sum);
      return sum;
    };
    const one = await gradients(rows, 1);
    for (const threads of [2, 4])
      expect(Buffer.compare(Buffer.from((await gradients(rows, threads)).buffer), Buffer.from(one.buffer))).toBe(0);
    const [first, second] = [await gradients(rows.slice(0, 1), 2), await gradients(rows.slice(1), 2)];
    const largest = one.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
    expect(largest).toBeGreaterThan(0);
    expect(one.every((each, at) => Math.abs(each - first[at]! - second[at]!) <= 1e-5 * largest)).toBe(true);
  },
);
