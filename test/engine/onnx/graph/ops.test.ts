import { describe, expect, test } from "vitest";
import { expandTo, Graph } from "../../../../src/engine/onnx/graph/index.ts";
import { loadRuntime, Program } from "../../../../src/engine/onnx/runtime/program.ts";
import { interpret } from "../../../support/graph-interpreter.ts";
import { build, CASES, feedsOf } from "../../../support/op-cases.ts";

describe("op catalogue", () => {
  test.each(CASES)("$name: gradients equal central differences", (op) => {
    const { graph, variables } = build(op);
    const feeds = feedsOf(op, graph, op.small);
    const exact = interpret(graph, feeds);
    const epsilon = 1e-5;
    for (const name of variables) {
      const x = feeds[name]!;
      const gradient = exact[`d_${name}`]!;
      expect(gradient.shape).toEqual(x.shape);
      for (let i = 0; i < x.data.length; i++) {
        const shifted = (delta: number) => {
          const data = Float64Array.from(x.data);
          data[i]! += delta;
          return interpret(graph, { ...feeds, [name]: { shape: x.shape, data } }, ["loss"])["loss"]!.data[0]!;
        };
        const difference = (shifted(epsilon) - shifted(-epsilon)) / (2 * epsilon);
        // Central differences of a smooth function in float64 are good to about epsilon² and rounding/epsilon.
        expect(Math.abs(gradient.data[i]! - difference), `${name}[${i}]`).toBeLessThanOrEqual(1e-7 * Math.max(1, Math.abs(difference)));
      }
    }
  });

  test.each(CASES)("$name: native float32 at production size equals float64, bit-identical for 1, 2 and 4 threads", async (op) => {
    const ort = await loadRuntime();
    const { graph, variables } = build(op);
    const feeds = feedsOf(op, graph, op.large);
    const exact = interpret(graph, feeds);
    const names = ["output", ...variables.map((name) => `d_${name}`)];
    let first: Record<string, Float32Array> | undefined;
    for (const threads of [1, 2, 4]) {
      const program = await Program.compile(graph, op.name, { threads });
      const tensors = Object.fromEntries(
        program.inputNames.map((name) => {
          const { shape, data } = feeds[name]!;
          const isIndex = graph.inputs.find((input) => input.name === name)!.dtype === "int64";
          return [
            name,
            isIndex
              ? new ort.Tensor(
                  "int64",
                  BigInt64Array.from(data, (v) => BigInt(v)),
                  shape,
                )
              : new ort.Tensor("float32", Float32Array.from(data), shape),
          ];
        }),
      );
      for (let round = 0; round < 3; round++) {
        const results = await program.run(tensors, names);
        const arrays = Object.fromEntries(names.map((name) => [name, results[name]!.data as Float32Array]));
        if (!first) {
          first = arrays;
          for (const name of names) {
            const expected = exact[name]!.data;
            const scale = expected.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-3);
            let worst = 0;
            expected.forEach((v, i) => (worst = Math.max(worst, Math.abs(v - arrays[name]![i]!))));
            // float32 carries 6e-8; sums of up to 2048 terms lose a few bits more.
            expect(worst / scale, name).toBeLessThan(5e-6);
          }
        } else
          for (const name of names)
            expect(
              Buffer.from(arrays[name]!.buffer, arrays[name]!.byteOffset, arrays[name]!.byteLength).equals(
                Buffer.from(first[name]!.buffer, first[name]!.byteOffset, first[name]!.byteLength),
              ),
              `${name} at ${threads} threads`,
            ).toBe(true);
      }
      await program.release();
    }
  });
});

test.each([
  [
    ["R", 3],
    ["R", 1],
  ],
  [
    ["R", 3],
    ["R", 4],
  ],
  [
    ["R", 1],
    ["T", 24],
  ],
  [[2, 3], [3]],
] as const)("expandTo rejects %j, which does not broadcast to %j", (from, to) => {
  expect(() => expandTo(new Graph().input("x", from), to)).toThrow(/Expected a shape that broadcasts to \[.*\], got \[/u);
});
