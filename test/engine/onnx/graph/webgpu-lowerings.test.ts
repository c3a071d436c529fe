/** Kernels that the lowerings of WebGPU choose by the shapes of a product; `test/engine/device/ops.test.ts` has their results. */
import { expect, test } from "vitest";
import { type Dim, formatShape, Graph, liveNodes } from "../../../../src/engine/onnx/graph/graph.ts";
import { matmul, type MatmulOptions } from "../../../../src/engine/onnx/graph/index.ts";
import { lower } from "../../../../src/engine/onnx/graph/lower.ts";
import { WEBGPU_LOWERINGS } from "../../../../src/engine/onnx/graph/lowerings/webgpu.ts";

interface Product {
  readonly a: readonly Dim[];
  readonly b: readonly Dim[];
  readonly options?: MatmulOptions & { readonly isAdded?: boolean };
  readonly smallDims?: readonly string[];
}

/** Returns the kernels of a lowered product with the shapes of their results. */
function kernels({ a, b, options: { isAdded = false, ...options } = {}, smallDims = [] }: Product): string[] {
  const graph = new Graph();
  for (const dim of smallDims) graph.smallDims.add(dim);
  const [left, right] = [graph.input("a", a), graph.input("b", b)];
  const { shape } = matmul(left, right, options);
  graph.output("y", matmul(left, right, { ...options, plus: isAdded ? graph.input("plus", shape) : undefined }));
  const nodes = liveNodes(lower(graph, WEBGPU_LOWERINGS)).filter(({ op, outputs: [y] }) => op !== "Reshape" && y!.dtype === "float32");
  return nodes.map(({ op, outputs: [y] }) => `${op} ${formatShape(y!.shape)}`);
}

test("a gradient of an adapter transposes the narrow matrix and copies no wide one", () => {
  expect(kernels({ a: ["R", 4864], b: ["R", 16], options: { transposeA: true, isAdded: true } })).toEqual([
    "Transpose [R_pieces, 16, R_piece]",
    "MatMul [R_pieces, 16, 4864]",
    "ReduceSum [1, 16, 4864]",
    "Transpose [4864, 16]",
    "Add [4864, 16]",
  ]);
  expect(kernels({ a: ["R", 16], b: ["R", 4864], options: { transposeA: true } })).toEqual([
    "Transpose [R_pieces, 16, R_piece]",
    "MatMul [R_pieces, 16, 4864]",
    "ReduceSum [1, 16, 4864]",
  ]);
});

test("a product with a transposed matrix transposes the matrix, and the kernel adds", () => {
  expect(kernels({ a: ["R", 16], b: [4864, 16], options: { transposeB: true, isAdded: true } })).toEqual([
    "Transpose [16, 4864]",
    "Gemm [R, 4864]",
  ]);
});

test("a tall matrix is not transposed for few rows", () => {
  const product = { a: ["R", 64], b: [4096, 64], options: { transposeB: true } } as const;
  expect(kernels(product)).toEqual(["Transpose [64, 4096]", "MatMul [R, 4096]"]);
  expect(kernels({ ...product, smallDims: ["R"] })).toEqual(["Transpose [64, R]", "MatMul [4096, R]", "Transpose [R, 4096]"]);
});

test("a large matrix is not transposed for few rows unless it is wider than long", () => {
  const product = { a: ["R", 4096], options: { transposeB: true }, smallDims: ["R"] } as const;
  expect(kernels({ ...product, b: [4096, 4096] })).toEqual(["Transpose [4096, R]", "MatMul [4096, R]", "Transpose [R, 4096]"]);
  expect(kernels({ ...product, b: [4095, 4096] })).toEqual(["Transpose [4096, 4095]", "MatMul [R, 4095]"]);
  expect(kernels({ ...product, a: ["R", 8192], b: [4096, 8192] })).toEqual(["Transpose [8192, 4096]", "MatMul [R, 4096]"]);
});

test("a long sum is cut into parts for few rows, also after a transposition", () => {
  const parts = (size: number) => [`Transpose [4, R, ${size / 4}]`, "MatMul [4, R, 16]", "ReduceSum [1, R, 16]"];
  const smallDims = ["R"];
  expect(kernels({ a: ["R", 2 ** 14], b: [2 ** 14, 16], smallDims })).toEqual(parts(2 ** 14));
  const transposed = kernels({ a: ["R", 2 ** 14], b: [16, 2 ** 14], options: { transposeB: true }, smallDims });
  expect(transposed).toEqual(expect.arrayContaining(parts(2 ** 14)));
  expect(kernels({ a: ["R", 4864], b: [4864, 16], smallDims })).toEqual(["MatMul [R, 16]"]);
  expect(kernels({ a: ["R", 2 ** 14], b: [2 ** 14, 16] })).toEqual(["MatMul [R, 16]"]);
});
