import { join } from "node:path";
import { expect, test } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { rotaryTables } from "../../../../src/engine/onnx/model/rope.ts";
import { BaseWeights } from "../../../../src/engine/onnx/model/base-weights.ts";
import { float32Weights } from "../../../../src/engine/onnx/model/stored-weights.ts";
import { readBaseWeights } from "../../../../src/engine/onnx/model/weights.ts";
import { planBatches } from "../../../../src/engine/onnx/train/batch.ts";
import type { BatchModel } from "../../../../src/engine/onnx/train/batch-runner.ts";
import { Runners } from "../../../../src/engine/onnx/train/runners.ts";
import { HelperThread } from "../../../../src/engine/onnx/threads/helper-thread.ts";
import { ROOT } from "../../../project/files.ts";

const directory = join(ROOT, "models/whetstone-tiny");
const config = await readModelConfig(directory);
const layout = baseLayout(config);
const weights = await readBaseWeights(directory, layout);
const base = { config, layout, weights: BaseWeights.kept(float32Weights(layout, weights)), rotary: rotaryTables(config) };
const model: BatchModel = { base, lora: null, layout, parameters: weights };
const rows = [{ tokens: Int32Array.from({ length: 20 }, (_, t) => t), weights: new Float32Array(20).fill(1, 1) }];
const batches = planBatches(rows, { maxTokens: 512, maxSharing: 512, minRows: 1, pairCost: 1e-3, maxTrained: 4096 });

test("caches programs per thread count, compiles released programs again, and counts every compilation", async () => {
  const runners = new Runners();
  const run = async (threads: number) => {
    const result = await runners.of(threads).run(model, rows, batches[0]!, null, null);
    return { result, compiled: runners.compiled };
  };
  const first = await run(1);
  expect(await run(1)).toEqual({ ...first, compiled: 1 });
  expect(await run(2)).toEqual({ ...first, compiled: 2 });
  runners.keep(new Set([2]));
  expect(await run(2)).toEqual({ ...first, compiled: 2 });
  expect(await run(1)).toEqual({ ...first, compiled: 3 });
});

test("the helper thread releases programs, and with no thread count to keep also models, which it can receive again", async () => {
  const thread = new HelperThread({ niceness: 0 }, () => undefined);
  const { signal } = new AbortController();
  const stepModel = { ...model, id: "model", version: 0, gradients: new Float32Array(layout.length) };
  const run = (threads: number) => thread.run({ model: stepModel, rows, batches, loss: null, signal }, threads);
  const { results } = await run(1);
  expect((await run(2)).results).toEqual(results);
  expect(thread.compiled).toBe(2);
  await thread.keep(new Set([2]));
  await run(2);
  expect(thread.compiled).toBe(2);
  await thread.keep(new Set());
  expect((await run(2)).results).toEqual(results);
  expect(thread.compiled).toBe(3);
});
