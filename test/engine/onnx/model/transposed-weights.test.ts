/** Weights in float32 with matrices as in the file, and the products that read them. */
import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { uniform } from "../../../../src/base/util/rng.ts";
import { liveNodes } from "../../../../src/engine/onnx/graph/graph.ts";
import { lower, type StoredFormats } from "../../../../src/engine/onnx/graph/lower.ts";
import { Graph, matmul, softmax, type Value } from "../../../../src/engine/onnx/graph/index.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { baseLayout, viewOf } from "../../../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../../../src/engine/onnx/model/safetensors.ts";
import { readTransposedWeights } from "../../../../src/engine/onnx/model/stored-weights.ts";
import { readBaseWeights, readInParallel, unpackTensors } from "../../../../src/engine/onnx/model/weights.ts";
import { loadRuntime, Program } from "../../../../src/engine/onnx/runtime/program.ts";
import { writeRandomWeights } from "../../../bench/random-weights.ts";
import { family, scratch } from "../../../export/support.ts";

const TRANSPOSED: StoredFormats = new Map([["w", "transposed"]]);

/** Returns a matrix `[rows, columns]` transposed. */
function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  return Float32Array.from(values, (_, i) => values[(i % rows) * columns + Math.floor(i / rows)]!);
}

/** Returns a copy of a model with its weights in one file. */
async function copyOf(name: string, dtype: "F32" | "BF16"): Promise<string> {
  const directory = await scratch();
  await cp(join(family(name, "model"), "config.json"), join(directory, "config.json"));
  await writeRandomWeights(directory, dtype);
  return directory;
}

test.each([
  { label: "float32", directory: () => copyOf("qwen2", "F32") },
  { label: "bfloat16", directory: () => copyOf("phi3-longrope", "BF16") },
  { label: "several files and a separate head", directory: () => Promise.resolve(family("llama3", "model")) },
])("reads the weights of $label with matrices transposed, checked or not", async ({ directory: make }) => {
  const directory = await make();
  const layout = baseLayout(await readModelConfig(directory));
  const expected = await readBaseWeights(directory, layout);
  for (const isChecked of [false, true]) {
    const { flat, isTransposed } = await readTransposedWeights(directory, layout, isChecked);
    expect([isTransposed, flat.length]).toEqual([true, layout.length]);
    for (const parameter of layout.parameters) {
      const [rows, columns] = parameter.shape as [number, number];
      const values = viewOf(flat, parameter);
      expect(parameter.kind === "matrix" ? transposed(values, columns, rows) : values).toEqual(viewOf(expected, parameter));
    }
  }
});

test("a number that is not finite is an error with the name of its tensor, unless the file was checked before", async () => {
  const source = await copyOf("qwen2", "F32");
  const layout = baseLayout(await readModelConfig(source));
  const directory = await scratch();
  await writeFile(join(directory, "config.json"), await readFile(join(source, "config.json")));
  const name = "model.layers.1.mlp.up_proj.weight";
  const tensors = unpackTensors(await readBaseWeights(source, layout), layout);
  await writeSafetensors(
    join(directory, "model.safetensors"),
    tensors.map((tensor) => (tensor.name === name ? { ...tensor, data: tensor.data.with(7, Infinity) } : tensor)),
  );
  const message = expect.stringContaining(`expected tensor "${name}" to hold finite numbers, got Infinity at element 7`) as string;
  await expect(readTransposedWeights(directory, layout, false)).rejects.toMatchObject({ code: "E_DATA", message });
  expect((await readTransposedWeights(directory, layout, true)).flat).toContain(Infinity);
});

test("parallel reads end after an error, and report the first tensor that cannot be read", async () => {
  const read: string[] = [];
  const source = {
    async readInto(name: string) {
      read.push(name);
      await setImmediate();
      if (name === "1") await setImmediate();
      if (name === "1" || name === "2") throw new Error(`tensor ${name}`);
    },
  };
  const tensors = Array.from({ length: 100 }, (_, i) => [String(i), new Float32Array(1)] as const);
  await expect(readInParallel(source, tensors, false)).rejects.toThrow("tensor 1");
  expect(read.length).toBeLessThan(8);
});

const [ROWS, INNER, WIDTH] = [5, 24, 40];
const random = (length: number, seed: bigint) => Float32Array.from({ length }, (_, i) => uniform(seed, i) - 0.5);

test.each<{ label: string; build: (x: Value, w: Value, plus: Value) => Value; operators: string[] }>([
  { label: "a product", build: (x, w) => matmul(x, w), operators: ["Gemm"] },
  { label: "a product with a sum", build: (x, w, plus) => matmul(x, w, { plus, scale: 0.5 }), operators: ["Gemm"] },
  { label: "a gradient", build: (x, w) => matmul(matmul(x, w), w, { transposeB: true, scale: 2 }), operators: ["Gemm", "Gemm"] },
  { label: "another operator", build: (x, w) => matmul(x, softmax(w)), operators: ["Transpose", "Softmax", "MatMul"] },
])("$label reads a transposed matrix with the bits of the matrix", async ({ build, operators }) => {
  const values = random(INNER * WIDTH, 1n);
  const { Tensor } = await loadRuntime();
  const results: Float32Array[] = [];
  for (const isTransposed of [false, true]) {
    for (const isConstant of [false, true]) {
      const graph = new Graph();
      graph.output("y", build(graph.input("x", ["rows", INNER]), graph.input("w", [INNER, WIDTH]), graph.input("plus", ["rows", WIDTH])));
      if (isTransposed) expect(liveNodes(lower(graph, {}, { stored: TRANSPOSED })).map(({ op }) => op)).toEqual(operators);
      const stored = isTransposed ? transposed(values, INNER, WIDTH) : values;
      const program = await Program.compile(graph, "transposed", {
        threads: 1,
        constants: isConstant ? new Map([["w", stored]]) : undefined,
        stored: isTransposed ? TRANSPOSED : undefined,
      });
      onTestFinished(() => program.release());
      const inputs = {
        x: new Tensor("float32", random(ROWS * INNER, 2n), [ROWS, INNER]),
        plus: new Tensor("float32", random(ROWS * WIDTH, 3n), [ROWS, WIDTH]),
        w: new Tensor("float32", stored, isTransposed ? [WIDTH, INNER] : [INNER, WIDTH]),
      };
      const fed = Object.fromEntries(Object.entries(inputs).filter(([name]) => program.inputNames.includes(name)));
      results.push((await program.run(fed, ["y"]))["y"]!.data as Float32Array);
    }
  }
  const [first] = results;
  expect(first!.some((value) => value !== 0)).toBe(true);
  for (const result of results) expect(result).toEqual(first);
});
