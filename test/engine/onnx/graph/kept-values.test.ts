import { expect, test } from "vitest";
import { dimSizes, sizedShape } from "../../../../src/engine/onnx/graph/dim-sizes.ts";
import * as g from "../../../../src/engine/onnx/graph/index.ts";
import { keptValues } from "../../../../src/engine/onnx/graph/kept-values.ts";
import { lower } from "../../../../src/engine/onnx/graph/lower.ts";

test("kept values are the results of the first nodes that later nodes read, without inputs, constants and aliases", () => {
  const graph = new g.Graph();
  const x = graph.input("x", ["R", 8]);
  const read = g.exp(x);
  const unread = g.sqrt(read);
  const reshaped = g.reshape(g.mul(unread, unread), ["R", 2, 4]);
  const count = graph.nodes.length;
  const result = g.mul(g.reshape(g.mul(read, x), ["R", 2, 4]), reshaped);
  g.neg(unread);
  graph.output("y", g.mul(result, graph.scalar(2)));
  expect(keptValues(graph, count).map(({ name }) => name)).toEqual([read.name, graph.nodes[2]!.outputs[0]!.name]);
});

test("sizes of dimensions come from inputs, and through Concat and Reshape", () => {
  const graph = new g.Graph();
  const [a, b] = [graph.input("a", ["A", 6]), graph.input("b", ["B", 6])];
  const both = g.concat([a, b], 0, "both");
  const wide = g.reshape(both, ["both", 2, "wide"]);
  graph.output("y", wide);
  const sizes = dimSizes(graph)({ a: { dims: [2, 6] }, b: { dims: [3, 6] } });
  expect(Object.fromEntries(sizes)).toEqual({ A: 2, B: 3, both: 5, wide: 3 });
  expect(sizedShape(wide.shape, sizes)).toEqual([5, 2, 3]);
  expect(sizedShape(["both", "unknown"], sizes)).toBeNull();
});

test("a direct output is written by its own node, also of a lowered graph; other outputs are copies", () => {
  const graph = new g.Graph();
  const x = graph.input("x", ["R", 8]);
  const direct = g.exp(x);
  graph.directOutput("direct", direct);
  graph.output("copy", g.mul(direct, direct));
  for (const each of [graph, lower(graph, { Exp: (_, [input]) => [g.sqrt(input!)] })]) {
    const model = Buffer.from(g.writeOnnx(each, "graph")).toString("latin1");
    expect(model.match(/Identity/gu)).toHaveLength(1);
    expect(model.match(/direct/gu)!.length).toBeGreaterThan(2);
    expect([...each.outputs.keys()]).toEqual(["direct", "copy"]);
  }
});
