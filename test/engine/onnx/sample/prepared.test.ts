/** Decode graphs with matrices rounded to 8 bits. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createOnnxEngine } from "../../../../src/engine/index.ts";
import { dequantize } from "../../../../src/base/gguf/blocks.ts";
import { inEightBits, quantize } from "../../../../src/engine/onnx/sample/prepared.ts";
import type { Engine, PolicyVersion, Row } from "../../../../src/engine/port.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import { writeRandomWeights } from "../../../bench/random-weights.ts";

const SHIPPED = join(import.meta.dirname, "../../../../models/whetstone-tiny");

let directory: string;
let engine: Engine | undefined;
beforeEach(async () => (directory = await mkdtemp(join(tmpdir(), "whetstone-int8-"))));
afterEach(async () => {
  await engine?.close();
  engine = undefined;
  await rm(directory, { recursive: true, force: true });
});

const random = (seed: bigint, length: number) => Float32Array.from({ length }, (_, i) => 2 * uniform(seed, i) - 1);

test("rounds each block of 32 elements to 8 bits with a scale of its own", () => {
  const width = 70;
  const values = random(1n, 3 * width);
  values.fill(0, 0, 32);
  values[40] = 5;
  const { q, scales } = quantize(values, { shape: [3, width], isTransposed: true });
  expect([q.length, scales.length]).toEqual([3 * 96, 3 * 3]);
  expect(scales[0]).toBe(0);
  expect(scales[1]).toBe(Math.fround(5 / 127));
  for (let row = 0; row < 3; row++) {
    for (let column = 0; column < 96; column++) {
      const level = q[row * 96 + column]! - 128;
      if (column >= width) {
        expect(level).toBe(0);
        continue;
      }
      const scale = scales[row * 3 + Math.floor(column / 32)]!;
      expect(Math.abs(level)).toBeLessThanOrEqual(127);
      expect(Math.abs(values[row * width + column]! - scale * level)).toBeLessThanOrEqual(scale * 0.501);
    }
  }
});

test("rounds a matrix [in, out] as its transpose", () => {
  const [inner, width] = [70, 5];
  const values = random(4n, inner * width);
  const transposed = Float32Array.from({ length: values.length }, (_, i) => values[(i % inner) * width + Math.floor(i / inner)]!);
  expect(quantize(values, { shape: [inner, width], isTransposed: false })).toEqual(
    quantize(transposed, { shape: [width, inner], isTransposed: true }),
  );
});

test("a matrix in 4 bits with offsets becomes one in 8 bits without, each element within half a level", () => {
  const [rows, blocksPerRow] = [150, 3];
  const blocks = rows * blocksPerRow;
  const matrix = {
    bits: 4 as const,
    q: Uint8Array.from(random(5n, blocks * 16), (x) => (x + 1) * 127),
    scales: random(6n, blocks),
    offsets: random(7n, blocks),
    rows,
    width: 70,
    isTransposed: true,
  };
  matrix.scales.fill(0, 0, 2);
  matrix.offsets[0] = 0;
  const rounded = inEightBits(matrix);
  expect(rounded).toMatchObject({ bits: 8, offsets: null, rows, width: 70, isTransposed: true });
  expect([rounded.q.length, rounded.scales.length]).toEqual([blocks * 32, blocks]);
  const [before, after] = [new Float32Array(blocks * 32), new Float32Array(blocks * 32)];
  dequantize(matrix, 0, before);
  dequantize(rounded, 0, after);
  for (let i = 0; i < before.length; i++)
    expect(Math.abs(after[i]! - before[i]!)).toBeLessThanOrEqual(rounded.scales[Math.floor(i / 32)]! * 0.501);
  expect(inEightBits(rounded)).toBe(rounded);
});

test("samples a large model in int8 with an adapter, bit-identical in a batch and with any threads", async () => {
  const [shape, lora] = [{ vocab_size: 62_000, tie_word_embeddings: false }, { rank: 4 }];
  const config = JSON.parse(await readFile(join(SHIPPED, "config.json"), "utf8")) as object;
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, ...shape, num_hidden_layers: 2, initializer_range: 0.1 }));
  await writeRandomWeights(directory);
  const found: unknown[] = [];
  const differences: number[] = [];
  for (const samplerThreads of [1, 2]) {
    engine = await createOnnxEngine({ baseModels: { large: directory }, samplerThreads, trainerThreads: 1, rolloutPrecision: "int8" });
    const model = await engine.createModel({ base: "large", seed: 1, lora });
    const policy = await engine.publish(model);
    const together = await Promise.all(Array.from({ length: 5 }, (_, index) => sample(policy, index)));
    expect(await sample(policy, 3)).toEqual(together[3]);
    found.push(together);
    const rows = together.map((tokens, index): Row => {
      const all = Int32Array.of(...promptOf(index), ...tokens.map(({ id }) => id));
      return { tokens: all, weights: new Float32Array(all.length).fill(1, promptOf(index).length) };
    });
    const trained = await engine.forward(model, rows);
    // The prompt is computed in float32, and with it the distribution of the first token.
    together.forEach((tokens, index) => {
      tokens.forEach(({ logprob }, t) => {
        const difference = Math.abs(logprob - trained[index]![promptOf(index).length + t]!);
        if (t === 0) expect(difference).toBeLessThan(2e-5);
        else differences.push(difference);
      });
    });
    await engine.close();
    engine = undefined;
  }
  expect(found[1]).toEqual(found[0]);
  const mean = differences.reduce((sum, difference) => sum + difference, 0) / differences.length;
  expect(mean).toBeGreaterThan(1e-4);
  expect(mean).toBeLessThan(0.1);
}, 120_000);

const promptOf = (index: number) => Int32Array.from({ length: 8 + index }, (_, t) => (index * 31 + t * 17) % 50_000);

async function sample(policy: PolicyVersion, index: number): Promise<{ readonly id: number; readonly logprob: number }[]> {
  const tokens = [];
  const params = { maxTokens: 5, temperature: 1, topP: 1, topK: 0, seed: BigInt(index), stopTokenIds: [], topLogprobs: 0 };
  for await (const { id, logprob } of engine!.sample(policy, promptOf(index), params)) tokens.push({ id, logprob });
  return tokens;
}
