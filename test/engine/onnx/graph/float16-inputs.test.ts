/** Copies of weights in lowered graphs: conversions of float16 inputs, and transpositions. `test/engine/device/float16.test.ts` has results. */
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { type DType, formatShape, Graph, liveNodes } from "../../../../src/engine/onnx/graph/graph.ts";
import { concat, gatherRows, matmul, writeOnnx } from "../../../../src/engine/onnx/graph/index.ts";
import { lower, runCopiesLate, type StoredFormats } from "../../../../src/engine/onnx/graph/lower.ts";
import { CPU_LOWERINGS } from "../../../../src/engine/onnx/graph/lowerings/cpu.ts";
import { WEBGPU_LOWERINGS } from "../../../../src/engine/onnx/graph/lowerings/webgpu.ts";
import { type ModelConfig, readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { storedInputs } from "../../../../src/engine/onnx/model/device-bases.ts";
import { baseLayout } from "../../../../src/engine/onnx/model/parameters.ts";
import { webgpu } from "../../../../src/engine/onnx/runtime/device.ts";
import { dropProfile, newProfile } from "../../../../src/engine/onnx/runtime/placement.ts";
import { float16Tensor } from "../../../../src/engine/onnx/runtime/program.ts";
import { deviceGraph } from "../../../../src/engine/onnx/sample/device-graphs.ts";
import { gradientGraph } from "../../../../src/engine/onnx/train/gradient-graph.ts";

const HALVES: StoredFormats = new Map([
  ["w", "float16"],
  ["table", "float16"],
]);
const TO_FLOAT32 = { to: { int: 1 } };

/** Returns the nodes of a lowered graph, each as its operator and the names or operators of its inputs. */
function nodesOf(graph: Graph, stored: StoredFormats): { op: string; inputs: string[]; dtypes: DType[] }[] {
  const nodes = liveNodes(runCopiesLate(lower(graph, WEBGPU_LOWERINGS, { stored })));
  const makers = new Map(nodes.flatMap(({ op, outputs }) => outputs.map((output) => [output, op] as const)));
  return nodes.map(({ op, inputs, outputs }) => ({
    op,
    inputs: inputs.map((input) => makers.get(input) ?? input.name),
    dtypes: outputs.map(({ dtype }) => dtype),
  }));
}

test("each node that reads a float16 input has a conversion of its own, before the nodes that depend on other inputs", () => {
  const graph = new Graph();
  const [x, w] = [graph.input("x", ["R", 8]), graph.input("w", [8, 8])];
  graph.output("y", matmul(matmul(matmul(x, w), w), w, { transposeB: true }));
  expect(nodesOf(graph, HALVES).map(({ op, inputs }) => `${op} ${inputs.join()}`)).toEqual([
    "Cast w",
    "Cast w",
    "Cast w",
    "Transpose Cast",
    "MatMul x,Cast",
    "MatMul MatMul,Cast",
    "MatMul MatMul,Transpose",
  ]);
});

test.each([
  { type: "float16", copied: ["Cast", "MatMul", "Cast", "Gemm"], lowerings: CPU_LOWERINGS },
  { type: "float32", copied: ["MatMul", "Transpose", "Gemm"], lowerings: WEBGPU_LOWERINGS },
] as const)("the runtime copies each $type weight directly before the product that reads it", async ({ type, copied, lowerings }) => {
  const graph = new Graph();
  const weights = [0, 1, 2, 3].map((i) => graph.input(`w${i}`, [8, 8]));
  const hidden = weights.reduce((x, w) => matmul(x, w), graph.input("x", ["R", 8]));
  // Backward, in the opposite order.
  graph.output(
    "y",
    weights.reduceRight((x, w) => matmul(x, w, { transposeB: true, scale: 2 }), hidden),
  );
  const names = weights.map(({ name }) => name);
  const stored: StoredFormats = new Map(type === "float16" ? names.map((name) => [name, "float16"]) : []);
  const { InferenceSession, Tensor } = await import("onnxruntime-node");
  const prefix = await newProfile();
  onTestFinished(() => dropProfile(prefix));
  const session = await InferenceSession.create(writeOnnx(runCopiesLate(lower(graph, lowerings, { stored })), "order"), {
    enableProfiling: true,
    profileFilePrefix: prefix,
    extra: webgpu().sessionOptions([], type === "float16").extra!,
  });
  const one =
    type === "float16" ? float16Tensor(Tensor, new Uint16Array(64).fill(0x3c00), [8, 8]) : new Tensor(new Float32Array(64).fill(1), [8, 8]);
  await session.run({
    x: new Tensor("float32", new Float32Array(16), [2, 8]),
    ...Object.fromEntries(names.map((name) => [name, one])),
  });
  session.endProfiling();
  const [file] = await readdir(dirname(prefix));
  const events = JSON.parse(await readFile(join(dirname(prefix), file!), "utf8")) as { name: string; args?: { op_name?: string } }[];
  const ops = events.filter(({ name }) => name.endsWith("_kernel_time")).map(({ args }) => args!.op_name);
  const half = copied.indexOf("MatMul") + 1;
  expect(ops).toEqual([...weights.flatMap(() => copied.slice(0, half)), ...weights.flatMap(() => copied.slice(half))]);
  await session.release();
});

test("of a table, only the gathered rows are converted", () => {
  const graph = new Graph();
  const ids = graph.input("ids", ["R"], "int64");
  graph.output("y", gatherRows(graph.input("table", [48, 8]), ids));
  const lowered = lower(graph, WEBGPU_LOWERINGS, { stored: HALVES });
  const [gather, cast] = liveNodes(lowered);
  expect([gather!.op, gather!.outputs[0]!.dtype]).toEqual(["Gather", "float16"]);
  expect([cast!.op, cast!.attributes, cast!.outputs[0]!.dtype, formatShape(cast!.outputs[0]!.shape)]).toEqual([
    "Cast",
    TO_FLOAT32,
    "float32",
    "[R, 8]",
  ]);
});

test("an output of the graph is float32 unless the graph declares it as float16", () => {
  const graph = new Graph();
  graph.output("converted", graph.input("w", [8, 8]));
  graph.output("stored", graph.input("half", [8, 8], "float16"));
  const { outputs } = lower(graph, WEBGPU_LOWERINGS, { stored: HALVES });
  expect([...outputs].map(([name, { dtype }]) => [name, dtype])).toEqual([
    ["converted", "float32"],
    ["stored", "float16"],
  ]);
});

test("transpositions of float32 inputs are before the nodes that depend on other inputs, too", () => {
  const graph = new Graph();
  const [x, w] = [graph.input("x", ["R", 8]), graph.input("w", [8, 8])];
  graph.output("y", concat([matmul(x, w), matmul(x, w, { transposeB: true })], 1, 16));
  expect(nodesOf(graph, new Map()).map(({ op }) => op)).toEqual(["Transpose", "MatMul", "MatMul", "Concat"]);
});

test("graphs of sampling and of training an adapter read every matrix as float16, and no other type than float32 reaches an operator", async () => {
  const config: ModelConfig = await readModelConfig(join(import.meta.dirname, "../../../oracle/llama/model"));
  const layout = baseLayout(config);
  const stored = storedInputs(layout, "float16");
  expect([...stored.keys()].toSorted()).toEqual(
    layout.parameters
      .filter(({ shape }) => shape.length === 2)
      .map(({ name }) => name)
      .toSorted(),
  );
  expect(storedInputs(layout, "float32").size).toBe(0);
  const shape = { prompts: null, packedRows: { count: 1, recompute: false } };
  const graphs = [
    deviceGraph("prompt", config, true, layout),
    deviceGraph("draw", config, false, layout),
    gradientGraph(config, "cispo", 4, shape, { mergesAdapters: false, masks: "ranges" }),
  ];
  for (const graph of graphs) {
    const nodes = liveNodes(lower(graph, WEBGPU_LOWERINGS, { stored }));
    const readers = nodes.filter(({ inputs }) => inputs.some(({ dtype }) => dtype === "float16"));
    expect(readers.every(({ op }) => op === "Cast" || op === "Gather")).toBe(true);
    const read = new Set(readers.flatMap(({ inputs }) => inputs.filter(({ dtype }) => dtype === "float16").map(({ name }) => name)));
    for (const name of stored.keys()) expect(read).toContain(name);
  }
});
