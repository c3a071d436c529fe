import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { InferenceSession } from "onnxruntime-node";
import { expect, onTestFinished, test, vi } from "vitest";
import { writeOnnx } from "../../../../src/engine/onnx/graph/index.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { adapterLayout, baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { rotaryTables } from "../../../../src/engine/onnx/model/rope.ts";
import { BaseWeights } from "../../../../src/engine/onnx/model/base-weights.ts";
import { storeWeights } from "../../../../src/engine/onnx/model/stored-weights.ts";
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

/** Computes gradients of an adapter on the shipped model, with a graph that is compiled anew. */
async function gradients(beforeRelease: () => void = () => {}): Promise<Float32Array> {
  const base = baseLayout(config);
  const layout = adapterLayout(config, 8);
  const random = (length: number, seed: bigint) => Float32Array.from({ length }, (_, i) => (uniform(seed, i) - 0.5) * 0.2);
  const stored = await storeWeights(random(base.length, 1n), base, "int4");
  const model = {
    base: { config, layout: base, weights: BaseWeights.kept(stored), rotary: rotaryTables(config) },
    lora: { rank: 8, alpha: 16 },
    layout,
    parameters: random(layout.length, 2n),
  };
  const rows = [{ tokens: Int32Array.from({ length: 40 }, (_, t) => (t * 17) % 100), weights: new Float32Array(40).fill(1, 1) }];
  const [batch] = planBatches(rows, { maxTokens: 512, maxSharing: 512, minRows: 1, pairCost: 1e-3, maxTrained: 4096 });
  const sum = new Float32Array(layout.length);
  const runner = new BatchRunner(1);
  await runner.run(model, rows, batch!, { kind: "cross-entropy" }, sum);
  beforeRelease();
  runner.programs.clear();
  return sum;
}

test("a graph compiled from its optimized form computes the same bits", async () => {
  const first = await gradients();
  expect(first.some((value) => value !== 0)).toBe(true);
  expect(await gradients()).toEqual(first);
});

test("a graph compiled from its optimized form runs its operators in the same order, on which its memory depends", async () => {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-profiles-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { create } = runtime.InferenceSession;
  const levels: unknown[] = [];
  let profiled: InferenceSession | undefined;
  const profiling = async (graph: Uint8Array, options: InferenceSession.SessionOptions) => {
    levels.push(options.graphOptimizationLevel);
    // A cached form exists only for equal options, so the profile is not one of them.
    profiled = await create(graph, { ...options, enableProfiling: true, profileFilePrefix: join(directory, `${levels.length}`) });
    return profiled;
  };
  vi.spyOn(runtime.InferenceSession, "create").mockImplementation(profiling as typeof create);
  for (let i = 0; i < 2; i++) await gradients(() => profiled!.endProfiling());
  const orders = await Promise.all(
    (await readdir(directory)).sort().map(async (file) => {
      const events = JSON.parse(await readFile(join(directory, file), "utf8")) as { name: string; args?: { op_name?: string } }[];
      return events.flatMap(({ name, args }) => (name.endsWith("_kernel_time") ? [args?.op_name] : []));
    }),
  );
  expect(levels.at(-1)).toBe("disabled");
  expect(orders).toHaveLength(2);
  expect(orders[0]!.length).toBeGreaterThan(100);
  expect(orders[1]).toEqual(orders[0]);
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
