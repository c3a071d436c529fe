/** Cheap values that the backward pass computes again. */
import { expect, onTestFinished, test } from "vitest";
import { zip } from "../../../../src/base/util/values.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import * as g from "../../../../src/engine/onnx/graph/index.ts";
import type { Value } from "../../../../src/engine/onnx/graph/graph.ts";
import { keptValues } from "../../../../src/engine/onnx/graph/kept-values.ts";
import { recomputeCheap } from "../../../../src/engine/onnx/graph/recompute.ts";
import { loadRuntime, Program } from "../../../../src/engine/onnx/runtime/program.ts";

const [TOP, ROWS, WIDTH] = [2, 6, 8];

/** Records two products that are joined by rows, a norm between two more products, and the gradients of the weights. */
function layers(graph: g.Graph): { count: number; kept: () => string[] } {
  const [a, b] = [graph.input("a", ["top", WIDTH]), graph.input("b", ["bottom", WIDTH])];
  const [u, v, w] = ["u", "v", "w"].map((name) => graph.input(name, [WIDTH, WIDTH])) as [Value, Value, Value];
  const joined = g.concat([g.exp(g.matmul(a, u)), g.exp(g.matmul(b, u))], 0, "rows");
  const normed = g.rmsNorm(g.matmul(joined, v), graph.input("gain", [WIDTH]), 1e-5);
  const y = g.matmul(normed, w);
  const count = graph.nodes.length;
  const dy = g.mul(graph.input("dy", ["rows", WIDTH]), graph.scalar(2));
  const gradients = g.pullback(new Map([[y, dy]]), [u, v, w]);
  graph.output("y", y);
  zip(["du", "dv", "dw"], gradients).forEach(([name, gradient]) => graph.output(name, gradient));
  const opOf = (value: Value) => graph.nodes.find(({ outputs }) => outputs.includes(value))!.op;
  return { count, kept: () => keptValues(graph, count).map(opOf) };
}

test("norms and joined rows are not kept, and the gradients have the same bits", async () => {
  const results: Record<string, Float32Array>[] = [];
  for (const isRecomputed of [false, true]) {
    const graph = new g.Graph();
    const { count, kept } = layers(graph);
    const before = kept();
    expect(before).toEqual(expect.arrayContaining(["SimplifiedLayerNormalization", "Concat"]));
    if (isRecomputed) {
      recomputeCheap(graph, count);
      expect(kept()).not.toContain("Concat");
      expect(kept().filter((op) => op === "SimplifiedLayerNormalization").length).toBeLessThan(
        before.filter((op) => op === "SimplifiedLayerNormalization").length,
      );
    }
    const program = await Program.compile(graph, "recompute", { threads: 1 });
    onTestFinished(() => program.release());
    const { Tensor } = await loadRuntime();
    const random = (length: number, seed: bigint) => Float32Array.from({ length }, (_, i) => uniform(seed, i) - 0.5);
    const outputs = await program.run(
      {
        a: new Tensor("float32", random(TOP * WIDTH, 1n), [TOP, WIDTH]),
        b: new Tensor("float32", random((ROWS - TOP) * WIDTH, 2n), [ROWS - TOP, WIDTH]),
        u: new Tensor("float32", random(WIDTH * WIDTH, 3n), [WIDTH, WIDTH]),
        v: new Tensor("float32", random(WIDTH * WIDTH, 4n), [WIDTH, WIDTH]),
        w: new Tensor("float32", random(WIDTH * WIDTH, 5n), [WIDTH, WIDTH]),
        gain: new Tensor("float32", random(WIDTH, 6n), [WIDTH]),
        dy: new Tensor("float32", random(ROWS * WIDTH, 7n), [ROWS, WIDTH]),
      },
      ["y", "du", "dv", "dw"],
    );
    results.push(Object.fromEntries(Object.entries(outputs).map(([name, { data }]) => [name, data as Float32Array])));
  }
  expect(results[0]!["du"]!.some((value) => value !== 0)).toBe(true);
  expect(results[1]).toEqual(results[0]);
});

test("values that are computed from values that are not kept stay as they are", () => {
  const graph = new g.Graph();
  const x = graph.input("x", ["rows", WIDTH]);
  const w = graph.input("w", [WIDTH, WIDTH]);
  const joined = g.concat([g.neg(x), x], 1, 2 * WIDTH);
  const count = graph.nodes.length;
  graph.output("y", g.matmul(joined, g.concat([w, w], 0, 2 * WIDTH)));
  const nodes = [...graph.nodes];
  recomputeCheap(graph, count);
  expect(graph.nodes.map(({ op, inputs }) => [op, inputs])).toEqual(nodes.map(({ op, inputs }) => [op, inputs]));
});
