import { join } from "node:path";
import { afterEach, expect, test, vi } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { rotaryTables } from "../../../../src/engine/onnx/model/rope.ts";
import { BaseWeights } from "../../../../src/engine/onnx/model/base-weights.ts";
import { float32Weights } from "../../../../src/engine/onnx/model/stored-weights.ts";
import { Forward } from "../../../../src/engine/onnx/sample/forward.ts";
import { hostGraphs } from "../../../../src/engine/onnx/sample/host-place.ts";
import { watchPrograms } from "../../../support/programs.ts";

afterEach(() => {
  vi.useRealTimers();
});

test("prompts and decoding of prepared weights share a program", async () => {
  const programs = watchPrograms();
  const config = await readModelConfig(join(import.meta.dirname, "../../../oracle/llama/model"));
  const layout = baseLayout(config);
  const stored = float32Weights(layout, new Float32Array(layout.length));
  const weights = { config, fed: stored, matrices: BaseWeights.kept(stored), rotary: rotaryTables(config) };
  const forward = new Forward(hostGraphs(1));
  for (const kind of ["prompt", "continuation", "decode"] as const) await forward.prepare(kind, weights, "none", false);
  expect(programs.compiled()).toBe(1);
});

test("keeps at most 16 compiled graphs, releases the least recently used and compiles it again on use", async () => {
  const programs = watchPrograms();
  const config = await readModelConfig(join(import.meta.dirname, "../../../oracle/llama/model"));
  const weightsOf = (contextLength: number) => ({
    config: { ...config, contextLength },
    fed: float32Weights(baseLayout(config), new Float32Array(0)),
    matrices: null,
    rotary: { cos: new Float32Array(0), sin: new Float32Array(0) },
  });
  const forward = new Forward(hostGraphs(1));
  for (let i = 0; i < 20; i++) {
    await forward.prepare("decode", weightsOf(64), "none", false);
    await forward.prepare("decode", weightsOf(65 + i), "none", false);
  }
  expect(programs.compiled()).toBe(21);
  await expect.poll(programs.released).toBe(21 - 16);
  await forward.prepare("decode", weightsOf(65), "none", false);
  expect(programs.compiled()).toBe(22);
});

test("frees a program that holds weights for another one on the same weights once it is idle, and with the weights", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  const programs = watchPrograms();
  const config = await readModelConfig(join(import.meta.dirname, "../../../oracle/llama/model"));
  const layout = baseLayout(config);
  const stored = float32Weights(layout, new Float32Array(layout.length));
  const weights = { config, fed: stored, matrices: BaseWeights.kept(stored), rotary: rotaryTables(config) };
  const forward = new Forward(hostGraphs(1, "int8"));
  await forward.prepare("decode", weights, "none", false);
  await forward.prepare("decode", weights, "one", false);
  await forward.prepare("decode", weights, "none", false);
  expect([programs.compiled(), programs.released()]).toEqual([2, 0]);
  vi.advanceTimersByTime(11_000);
  await forward.prepare("decode", weights, "one", false);
  await forward.prepare("prompt", weights, "one", false);
  await expect.poll(programs.released).toBe(1);
  forward.forget(weights);
  await expect.poll(programs.released).toBe(3);
  expect(programs.compiled()).toBe(3);
});

test("frees the programs that hold weights of a large model on request, and none of a small one", async () => {
  const programs = watchPrograms();
  const config = await readModelConfig(join(import.meta.dirname, "../../../oracle/llama/model"));
  const weightsOf = (vocabularySize: number) => {
    const sized = { ...config, vocabularySize };
    const layout = baseLayout(sized);
    const stored = float32Weights(layout, new Float32Array(layout.length));
    return { config: sized, fed: stored, matrices: BaseWeights.kept(stored), rotary: rotaryTables(config) };
  };
  const [small, large] = [weightsOf(48), weightsOf(510_000)];
  const forward = new Forward(hostGraphs(1));
  for (const weights of [small, large]) await forward.prepare("decode", weights, "none", false);
  forward.freeIdle();
  await expect.poll(programs.released).toBe(1);
  for (const weights of [small, large]) await forward.prepare("decode", weights, "none", false);
  expect(programs.compiled()).toBe(3);
});
