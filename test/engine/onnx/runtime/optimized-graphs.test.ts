import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { InferenceSession } from "onnxruntime-node";
import { expect, onTestFinished, test, vi } from "vitest";
import { writeOnnx } from "../../../../src/engine/onnx/graph/index.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { adapterLayout, baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { rotaryTables } from "../../../../src/engine/onnx/model/rope.ts";
import { BaseWeights } from "../../../../src/engine/onnx/model/base-weights.ts";
import { float32Weights } from "../../../../src/engine/onnx/model/stored-weights.ts";
import { cpu } from "../../../../src/engine/onnx/runtime/device.ts";
import { createOptimized } from "../../../../src/engine/onnx/runtime/optimized-graphs.ts";
import { loadRuntime } from "../../../../src/engine/onnx/runtime/program.ts";
import { planBatches } from "../../../../src/engine/onnx/train/batch.ts";
import { BatchRunner } from "../../../../src/engine/onnx/train/batch-runner.ts";
import { gradientGraph } from "../../../../src/engine/onnx/train/gradient-graph.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import { ROOT } from "../../../project/files.ts";

const config = await readModelConfig(join(ROOT, "models/whetstone-tiny"));
const runtime = await loadRuntime();

/** Creates sessions and records their optimization levels. */
function recorder() {
  const levels: (string | undefined)[] = [];
  const create = (graph: Uint8Array, options: InferenceSession.SessionOptions) => {
    levels.push(options.graphOptimizationLevel);
    return runtime.InferenceSession.create(graph, options);
  };
  return { levels, create };
}

/** Returns the serialized gradient graph of the shipped model with adapters of a rank. */
function serialized(rank: number): Uint8Array {
  const graph = gradientGraph(config, "cross-entropy", rank, { prompts: null, packedRows: { count: 1, recompute: false } });
  return writeOnnx(cpu.lower(graph, { packed: [] }), "gradient");
}

const options = { graphOptimizationLevel: "all", logSeverityLevel: 3 } as const;

test("a large graph is optimized once for each of its sessions' options", async () => {
  const { levels, create } = recorder();
  const graph = serialized(8);
  expect(graph.length).toBeGreaterThan(2 ** 16);
  const first = await createOptimized(create, graph, options);
  const second = await createOptimized(create, graph, options);
  await createOptimized(create, graph, { ...options, intraOpNumThreads: 2 });
  await createOptimized(create, serialized(4), options);
  expect(levels).toEqual(["all", "disabled", "all", "all"]);
  expect(second.inputNames).toEqual(first.inputNames);
  expect(second.outputNames).toEqual(first.outputNames);
});

test("a graph compiled from its optimized form computes the same bits", async () => {
  const base = baseLayout(config);
  const layout = adapterLayout(config, 8);
  const random = (length: number, seed: bigint) => Float32Array.from({ length }, (_, i) => (uniform(seed, i) - 0.5) * 0.2);
  const model = {
    base: { config, layout: base, weights: BaseWeights.kept(float32Weights(base, random(base.length, 1n))), rotary: rotaryTables(config) },
    lora: { rank: 8, alpha: 16 },
    layout,
    parameters: random(layout.length, 2n),
  };
  const rows = [{ tokens: Int32Array.from({ length: 40 }, (_, t) => (t * 17) % 100), weights: new Float32Array(40).fill(1, 1) }];
  const [batch] = planBatches(rows, { maxTokens: 512, maxSharing: 512, minRows: 1, pairCost: 1e-3, maxTrained: 4096 });
  const gradients = async () => {
    const sum = new Float32Array(layout.length);
    const runner = new BatchRunner(1);
    await runner.run(model, rows, batch!, { kind: "cross-entropy" }, sum);
    runner.programs.clear();
    return sum;
  };
  const first = await gradients();
  expect(first.some((value) => value !== 0)).toBe(true);
  expect(await gradients()).toEqual(first);
});

test("graphs are compiled without a directory for temporary files, and leave none behind", async () => {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-temporary-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { levels, create } = recorder();
  const graph = serialized(2);
  vi.stubEnv("TMPDIR", join(directory, "missing"));
  await createOptimized(create, graph, options);
  vi.stubEnv("TMPDIR", directory);
  await createOptimized(create, graph, options);
  await createOptimized(create, graph, options);
  expect(levels).toEqual(["all", "all", "disabled"]);
  expect(await readdir(directory)).toEqual([]);
});

test("a graph is compiled without its optimized form if the runtime cannot write the file", async () => {
  const { levels, create } = recorder();
  const full = (graph: Uint8Array, all: InferenceSession.SessionOptions) =>
    create(graph, all.optimizedModelFilePath === undefined ? all : { ...all, optimizedModelFilePath: "/missing/optimized.onnx" });
  const graph = serialized(6);
  await createOptimized(full, graph, options);
  await createOptimized(create, graph, options);
  await createOptimized(create, graph, options);
  expect(levels).toEqual(["all", "all", "all", "disabled"]);
  await expect(createOptimized(create, new Uint8Array(2 ** 17), options)).rejects.toThrow(/model|protobuf/iu);
});
