/** Kernels that the lowerings of WebGPU choose by the shapes of a product; `test/engine/device/ops.test.ts` has their results. */
import { expect, test } from "vitest";
import { type Dim, formatShape, Graph, liveNodes, type Value } from "../../../../src/engine/onnx/graph/graph.ts";
import { matmul, type MatmulOptions, reduceMax, reduceSum } from "../../../../src/engine/onnx/graph/index.ts";
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

/** Kernels of a product of `R` rows with a sum over `size`, in parts. */
const inParts = (size: number, parts: number, width: number) => [
  `Transpose [${parts}, R, ${size / parts}]`,
  `MatMul [${parts}, R, ${width}]`,
  `ReduceSum [1, R, ${width}]`,
];

test("a long sum is cut into parts for few rows, also after a transposition", () => {
  const smallDims = ["R"];
  const product = { a: ["R", 2 ** 15], b: [2 ** 15, 896] } as const;
  expect(kernels({ ...product, smallDims })).toEqual(inParts(2 ** 15, 32, 896));
  expect(kernels(product)).toEqual(["MatMul [R, 896]"]);
  const transposed = kernels({ a: ["R", 2 ** 15], b: [896, 2 ** 15], options: { transposeB: true }, smallDims });
  expect(transposed).toEqual(expect.arrayContaining(inParts(2 ** 15, 32, 896)));
});

test("a sum that a matrix is added to is cut into parts, too", () => {
  expect(kernels({ a: ["R", 2 ** 15], b: [2 ** 15, 896], options: { isAdded: true }, smallDims: ["R"] })).toEqual([
    ...inParts(2 ** 15, 32, 896),
    "Add [R, 896]",
  ]);
});

test("a long sum is cut into as many parts as divide it into multiples of four", () => {
  const kernelsOf = (size: number) => kernels({ a: ["R", size], b: [size, 896], smallDims: ["R"] });
  expect(kernelsOf(37_376)).toEqual(inParts(37_376, 32, 896));
  expect(kernelsOf(37_448)).toEqual(inParts(37_448, 2, 896));
  expect(kernelsOf(37_444)).toEqual(["MatMul [R, 896]"]);
  expect(kernelsOf(2 ** 13)).toEqual(["MatMul [R, 896]"]);
});

test("a product with one column is a sum", () => {
  expect(kernels({ a: ["R", 896], b: [896, 1], options: { scale: 0.5 } })).toEqual(["Mul [R, 896]", "ReduceSum [R, 1]", "Mul [R, 1]"]);
});

test("the operands of a batch of products are padded along a sum that is no multiple of four", () => {
  const product = { a: ["B", 2, "R", 65], b: ["B", 2, "K", 65], options: { transposeB: true } } as const;
  expect(kernels(product)).toEqual(["Transpose [B, 2, 65, K]", "Pad [B, 2, R, 68]", "Pad [B, 2, 68, K]", "MatMul [B, 2, R, K]"]);
});

test("a sum and a maximum of long rows are computed in parts, short rows at once", () => {
  const reduced = (width: number, reduce: (x: Value, axes: readonly number[]) => Value) => {
    const graph = new Graph();
    graph.output("y", reduce(graph.input("x", ["R", width]), [1]));
    return liveNodes(lower(graph, WEBGPU_LOWERINGS)).flatMap(({ op, outputs: [y] }) =>
      op === "Reshape" ? [] : [`${op} ${formatShape(y!.shape)}`],
    );
  };
  expect(reduced(151_936, reduceSum)).toEqual(["ReduceSum [R, 128, 1]", "ReduceSum [R, 1]"]);
  expect(reduced(151_936, reduceMax)).toEqual(["ReduceMax [R, 128, 1]", "ReduceMax [R, 1]"]);
  expect(reduced(50_257, reduceSum)).toEqual(["ReduceSum [R, 1]"]);
  expect(reduced(4096, reduceSum)).toEqual(["ReduceSum [R, 1]"]);
});
