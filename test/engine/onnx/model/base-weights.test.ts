/** Weights of large base models: freed while nothing computes with them, and read again. */
import { mkdtemp, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { BaseWeights } from "../../../../src/engine/onnx/model/base-weights.ts";
import { type ModelConfig, readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import type { StoredWeights } from "../../../../src/engine/onnx/model/stored-weights.ts";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import { deferred } from "../../../../src/base/util/deferred.ts";
import { writeRandomWeights } from "../../../bench/random-weights.ts";
import { ROOT } from "../../../project/files.ts";
import { Harness, params } from "../sample/harness.ts";

let directory: string;
let config: ModelConfig;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "whetstone-weights-"));
  const shipped = JSON.parse(await readFile(join(ROOT, "models/whetstone-tiny/config.json"), "utf8")) as object;
  const large = { vocab_size: 123_000, num_hidden_layers: 2, initializer_range: 0.1 };
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...shipped, ...large }));
  await writeRandomWeights(directory);
  config = await readModelConfig(directory);
});
afterAll(() => rm(directory, { recursive: true, force: true }));

/** Returns the array of weights, and its sum. */
const summed = ({ flat }: StoredWeights) => ({ flat, sum: flat.reduce((a, b) => a + b, 0) });

test("weights of a large model are read again after they were freed", async () => {
  const weights = await BaseWeights.read(directory, config, "float32");
  expect(weights.canBeFreed).toBe(true);
  const before = await weights.use(summed);
  expect((await weights.use(summed)).flat === before.flat).toBe(true);
  weights.free();
  await vi.waitFor(() => expect(before.flat.length).toBe(0), { timeout: 120_000 });
  const after = await weights.use(summed);
  expect([after.flat.length > 0, after.sum]).toEqual([true, before.sum]);
});

test("weights that something computes with are not freed", async () => {
  const weights = await BaseWeights.read(directory, config, "float32");
  const { promise, resolve } = deferred<void>();
  const length = weights.use(async ({ flat }) => {
    await promise;
    return flat.length;
  });
  weights.free();
  resolve();
  expect(await length).toBeGreaterThan(0);
});

test("weights in blocks stay in memory", async () => {
  const weights = await BaseWeights.read(directory, config, "int4");
  expect(weights.canBeFreed).toBe(false);
  const blocks = await weights.use((stored) => stored.blocks);
  weights.free();
  expect(await weights.use((stored) => stored.blocks)).toBe(blocks);
});

test("a file that was replaced in the meantime is not read", async () => {
  const weights = await BaseWeights.read(directory, config, "float32");
  weights.free();
  await utimes(join(directory, "model.safetensors"), new Date(0), new Date(0));
  await expect(weights.use(summed)).rejects.toMatchObject({
    code: "E_DATA",
    message: expect.stringContaining("restart the service") as string,
  });
});

test("sampling and training continue with the same bits after the memory of their base was freed", async () => {
  const harness = new Harness({ prefixCacheBytes: 0 }, onHost(1));
  const trainer = new Trainer({ threads: 1 });
  const base = { id: "large", directory };
  await harness.sampler.loadPolicy("p", base, undefined);
  const id = await trainer.createModel(base, { seed: 1, lora: { rank: 2 } });
  const prompt = Int32Array.from({ length: 40 }, (_, t) => t * 17);
  const row = { tokens: prompt, weights: new Float32Array(40).fill(1, 1) };
  const both = async () => {
    const sampled = await harness.run(prompt, params(1, { maxTokens: 3 }));
    const logprobs = await trainer.forward(id, [row], new AbortController().signal);
    return { sampled, logprobs };
  };
  const before = await both();
  harness.sampler.freeIdle();
  trainer.weights(id);
  expect(await both()).toEqual(before);
  await trainer.unload(id);
});
