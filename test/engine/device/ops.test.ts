/** The op catalogue on the device `webgpu`, where an adapter is installed. */
import { describe, expect, test } from "vitest";
import { webgpu } from "../../../src/engine/onnx/runtime/device.ts";
import type { Placement } from "../../../src/engine/onnx/runtime/placement.ts";
import { loadRuntime, Program } from "../../../src/engine/onnx/runtime/program.ts";
import { missingAdapter } from "../../support/adapter.ts";
import { interpret } from "../../support/graph-interpreter.ts";
import { build, CASES, DEVICE_CASES, feedsOf } from "../../support/op-cases.ts";

/** Cases with long sums, which also run at production size. */
const LARGE = ["gatherRows", "targetLogprob", "rmsNorm", "reduceSum", "matmul, a transposed", "softmax"];
const sizesOf = ({ name, small, large }: (typeof CASES)[number]) =>
  LARGE.some((prefix) => name.startsWith(prefix)) ? [small, large] : [small];

describe.skipIf(missingAdapter !== null)(
  `op catalogue on a software adapter${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  () => {
    test.each([...CASES, ...DEVICE_CASES])("$name: equals float64, repeats to the last bit, and stays on the device", async (op) => {
      const { Tensor } = await loadRuntime();
      const { graph, variables } = build(op);
      const names = ["output", ...variables.map((name) => `d_${name}`)];
      const placements: Placement[] = [];
      const program = await Program.compile(graph, op.name, { threads: 1, device: webgpu((placement) => placements.push(placement)) });
      for (const sizes of sizesOf(op)) {
        const feeds = feedsOf(op, graph, sizes);
        const exact = interpret(graph, feeds);
        const tensors = Object.fromEntries(
          program.inputNames.map((name) => {
            const { shape, data } = feeds[name]!;
            const isIndex = graph.inputs.find((input) => input.name === name)!.dtype === "int64";
            const ids = () => BigInt64Array.from(data, (v) => BigInt(v));
            return [name, isIndex ? new Tensor("int64", ids(), shape) : new Tensor("float32", Float32Array.from(data), shape)];
          }),
        );
        const run = async () => {
          const results = await program.run(tensors, names);
          return Object.fromEntries(names.map((name) => [name, results[name]!.data as Float32Array]));
        };
        const first = await run();
        for (const name of names) {
          const expected = exact[name]!.data;
          const scale = expected.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-3);
          const worst = expected.reduce((most, v, i) => Math.max(most, Math.abs(v - first[name]![i]!)), 0);
          expect(worst / scale, name).toBeLessThan(5e-6);
        }
        expect(await run()).toEqual(first);
      }
      expect(placements).toHaveLength(1);
      expect(placements[0]).toMatchObject({ onProcessor: {} });
      await program.release();
    });
  },
);
