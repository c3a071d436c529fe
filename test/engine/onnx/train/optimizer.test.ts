import { expect, test } from "vitest";
import { layOut } from "../../../../src/engine/onnx/model/parameters.ts";
import { Optimizer } from "../../../../src/engine/onnx/train/optimizer.ts";

test("the gradient norm is exact to float32 over millions of small gradients next to a large one", async () => {
  const shape = [2048, 4096] as const;
  const layout = layOut([{ name: "matrix", shape, kind: "matrix", files: [{ name: "matrix", start: 0, width: shape[1] }] }]);
  const zeros = () => new Float32Array(layout.length);
  const gradients = zeros().fill(1e-3);
  gradients[5] = 40;
  const optimizer = await Optimizer.create(1);
  const norm = await optimizer.step({ parameters: zeros(), gradients, first: zeros(), second: zeros(), step: 0 }, layout, {
    learningRate: 1e-3,
  });
  const expected = Math.sqrt(1600 + (layout.length - 1) * Math.fround(1e-3) ** 2);
  expect(Math.abs(norm / expected - 1)).toBeLessThan(1e-6);
});
