import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Row, SampledToken, SamplingParams } from "../../src/engine/port.ts";
import { createScriptedEngine } from "../../src/testing/index.ts";

const row: Row = { tokens: Int32Array.of(1, 2, 3), weights: Float32Array.of(0, 0.5, 0.5) };
const params: SamplingParams = { maxTokens: 5, temperature: 1, topP: 1, topK: 0, seed: 0n, stopTokenIds: [], topLogprobs: 0 };

async function collect(tokens: AsyncIterable<SampledToken>): Promise<[number, string | undefined][]> {
  const result: [number, string | undefined][] = [];
  for await (const { id, finish } of tokens) result.push([id, finish]);
  return result;
}

test("a saved state continues exactly where it was, moments included", async () => {
  const path = await mkdtemp(join(tmpdir(), "whetstone-scripted-"));
  onTestFinished(() => rm(path, { recursive: true }));
  const engine = createScriptedEngine();
  const step = async (model: { id: string; base: string }) => {
    await engine.forwardBackward(model, [row], { kind: "cross-entropy" });
    return engine.optimStep(model, { learningRate: 0.1 });
  };
  const model = await engine.createModel({ base: "scripted", seed: 1 });
  await step(model);
  await engine.saveState(model, path);
  const copy = await engine.createModel({ base: "scripted", from: path, seed: 1 });
  expect(await step(copy)).toEqual(await step(model));
  expect(await engine.forward(copy, [row])).toEqual(await engine.forward(model, [row]));
  await engine.resetOptimizer(copy);
  await step(copy);
  await step(model);
  expect(await engine.forward(copy, [row])).not.toEqual(await engine.forward(model, [row]));
});

test("a reset of the optimizer drops the accumulated gradients", async () => {
  const engine = createScriptedEngine();
  const model = await engine.createModel({ base: "scripted", seed: 1 });
  await engine.forwardBackward(model, [row], { kind: "cross-entropy" });
  await engine.resetOptimizer(model);
  expect(await engine.optimStep(model, { learningRate: 0.1 })).toEqual({ gradNorm: 0, step: 1 });
});

test("sampling follows the script to a stop token or the limit", async () => {
  const engine = createScriptedEngine({ script: () => [7, 8] });
  const policy = await engine.loadPolicy({ base: "scripted" });
  const prompt = Int32Array.of(1);
  expect(await collect(engine.sample(policy, prompt, { ...params, stopTokenIds: [9] }))).toEqual([
    [7, undefined],
    [8, undefined],
    [9, "stop"],
  ]);
  expect(await collect(engine.sample(policy, prompt, { ...params, maxTokens: 3 }))).toEqual([
    [7, undefined],
    [8, undefined],
    [7, "length"],
  ]);
  await engine.release(policy);
  await expect(collect(engine.sample(policy, prompt, params))).rejects.toThrow("not loaded");
});

test("the hook can fail a call, and an abort ends one with its own reason", async () => {
  const reason = new Error("enough");
  const controller = new AbortController();
  const engine = createScriptedEngine({
    before: ({ verb }) => {
      if (verb === "publish") throw new Error("no");
      if (verb === "sampleToken") controller.abort(reason);
    },
  });
  const model = await engine.createModel({ base: "scripted", seed: 1 });
  await expect(engine.publish(model)).rejects.toThrow("no");
  const policy = await engine.loadPolicy({ base: "scripted" });
  await expect(collect(engine.sample(policy, Int32Array.of(1), params, { signal: controller.signal }))).rejects.toBe(reason);
});
