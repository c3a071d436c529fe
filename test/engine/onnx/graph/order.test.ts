/** The order of execution in the native runtime, which its optimizations must not undo. */
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as g from "../../../../src/engine/onnx/graph/index.ts";
import { loadRuntime } from "../../../../src/engine/onnx/runtime/program.ts";

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "whetstone-order-"));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

/** Runs `Σ √exp(xᵢ)·W` for three `xᵢ`, with the settings of a program, and returns the operators among these in execution order. */
async function executed(name: string, next: (x: g.Value, result: g.Value) => g.Value): Promise<string[]> {
  const ort = await loadRuntime();
  const graph = new g.Graph();
  const x = graph.input("x", ["R", 8]);
  const weight = graph.input("weight", [8, 8]);
  let current = x;
  const results: g.Value[] = [];
  for (let i = 0; i < 3; i++) {
    // As a gradient sum has, the result has a shape without a name.
    const result = g.matmul(g.sqrt(g.exp(current)), g.sqrt(g.exp(current)), { transposeA: true, plus: results.at(-1) ?? weight });
    results.push(result);
    current = next(x, result);
  }
  results.forEach((result, i) => graph.output(`result${i}`, result));
  const session = await ort.InferenceSession.create(g.writeOnnx(graph, name), {
    executionProviders: ["cpu"],
    graphOptimizationLevel: "all",
    enableProfiling: true,
    profileFilePrefix: join(directory, name),
  });
  await session.run({
    x: new ort.Tensor("float32", new Float32Array(24).fill(1), [3, 8]),
    weight: new ort.Tensor("float32", new Float32Array(64), [8, 8]),
  });
  await session.release();
  const file = (await readdir(directory)).find((each) => each.startsWith(name))!;
  const events = JSON.parse(await readFile(join(directory, file), "utf8")) as { name: string; args?: { op_name?: string } }[];
  const operators = events.filter((event) => event.name.endsWith("_kernel_time")).map(({ args }) => args?.op_name ?? "");
  return operators.filter((operator) => ["Exp", "Gemm"].includes(operator));
}

test("a value after another is computed after it, and again", async () => {
  expect(await executed("ordered", (x, result) => g.after(x, [result]))).toEqual(["Exp", "Gemm", "Exp", "Gemm", "Exp", "Gemm"]);
});

test("without an order, the runtime computes equal values once", async () => {
  expect(await executed("merged", (x) => x)).toEqual(["Exp", "Gemm", "Gemm", "Gemm"]);
});

test("rejects a value with an unnamed first dimension", () => {
  const graph = new g.Graph();
  expect(() => g.after(graph.input("x", [3, 8]), [graph.input("y", ["R"])])).toThrow(/first dimension with a name, got \[3, 8\]/);
});
