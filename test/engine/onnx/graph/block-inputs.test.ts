/** Products of lowered graphs with matrices in blocks, against the formula. */
import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ShapeError } from "../../../../src/base/errors.ts";
import { BlockWriter } from "../../../../src/base/gguf/blocks.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import { type BlockFormat, blockNames } from "../../../../src/engine/onnx/graph/block-inputs.ts";
import { add, concat, gatherRows, Graph, matmul, transpose, type Value, writeOnnx } from "../../../../src/engine/onnx/graph/index.ts";
import { lower, type StoredFormats } from "../../../../src/engine/onnx/graph/lower.ts";
import { CPU_LOWERINGS } from "../../../../src/engine/onnx/graph/lowerings/cpu.ts";
import { cpu } from "../../../../src/engine/onnx/runtime/device.ts";
import { dropProfile, newProfile } from "../../../../src/engine/onnx/runtime/placement.ts";
import { loadRuntime, Program, type Tensors } from "../../../../src/engine/onnx/runtime/program.ts";
import { productRows } from "../../../../src/engine/onnx/runtime/thread-limits.ts";

const random = (seed: bigint, length: number) => Float32Array.from({ length }, (_, i) => 2 * uniform(seed, i) - 1);

/** Random matrix of `rows` rows in blocks, and its elements as numbers. */
function blocksOf(bits: 4 | 8, rows: number, width: number, hasOffsets: boolean) {
  const blocks = Math.ceil(width / 32);
  const writer = new BlockWriter(bits, rows * blocks);
  const elements = new Float64Array(rows * width);
  for (let block = 0; block < rows * blocks; block++) {
    const levels = Int8Array.from({ length: 32 }, (_, i) => Math.floor((uniform(BigInt(bits), block, i) - 0.5) * 2 ** bits));
    const scale = Math.fround(0.02 * (uniform(11n, block) + 0.1));
    const offset = hasOffsets ? Math.fround(0.3 * uniform(12n, block) - 0.1) : 0;
    writer.write(block, levels, scale, offset);
    const [row, start] = [Math.floor(block / blocks), (block % blocks) * 32];
    for (let i = 0; i < 32 && start + i < width; i++) elements[row * width + start + i] = scale * levels[i]! + offset;
  }
  return { tensor: writer.tensor, elements, blocks };
}

/** Compiles a graph with the matrix `w` in blocks and returns a function that runs it. */
async function compiled(
  matrix: ReturnType<typeof blocksOf>,
  shape: readonly [number, number],
  format: Pick<BlockFormat, "isTransposed"> & Partial<BlockFormat>,
  build: (x: Value, w: Value) => Value,
  { xShape, isConstant = false, threads = 1 }: { readonly xShape: readonly (number | string)[]; isConstant?: boolean; threads?: number },
) {
  const { tensor, blocks } = matrix;
  const graph = new Graph();
  const x = graph.input("x", xShape, xShape.length === 1 ? "int64" : "float32");
  graph.output("y", build(x, graph.input("w", shape)));
  const { Tensor } = await loadRuntime();
  const names = blockNames("w");
  const rows = tensor.scales.length / blocks;
  const arrays = { [names.q]: tensor.q, [names.scales]: tensor.scales, ...(tensor.offsets && { [names.offsets]: tensor.offsets }) };
  const tensors: Tensors = {
    [names.q]: new Tensor("uint8", tensor.q, [rows, blocks, 4 * tensor.bits]),
    [names.scales]: new Tensor("float32", tensor.scales, [rows, blocks]),
    ...(tensor.offsets && { [names.offsets]: new Tensor("float32", tensor.offsets, [rows, blocks]) }),
  };
  const program = await Program.compile(graph, "blocks", {
    threads,
    constants: isConstant ? new Map(Object.entries(arrays)) : undefined,
    stored: new Map([["w", { bits: tensor.bits, hasOffsets: tensor.offsets !== null, rows: "float32", ...format }]]),
  });
  onTestFinished(() => program.release());
  return async (input: Tensors[string]) =>
    (await program.run({ ...(isConstant ? {} : tensors), x: input }, ["y"]))["y"]!.data as Float32Array;
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array) => Buffer.from(buffer, byteOffset, byteLength);

/** Checks a product of `rows` rows of length `inner` against `exact(row, column)`, with a bound for each element. */
function check(
  found: Float32Array,
  [rows, columns]: readonly [number, number],
  exact: (row: number, column: number) => number,
  bound: number,
) {
  expect(found.length).toBe(rows * columns);
  let worst = 0;
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) worst = Math.max(worst, Math.abs(found[row * columns + column]! - exact(row, column)));
  expect(worst).toBeLessThan(bound);
}

const CASES = [4, 8].flatMap((bits) =>
  [true, false].flatMap((hasOffsets) => [64, 70].map((width) => ({ bits: bits as 4 | 8, hasOffsets, width }))),
);

test.each(CASES)(
  "multiplies along and across rows of $width elements in $bits bits, offsets: $hasOffsets",
  async ({ bits, hasOffsets, width }) => {
    const [rows, height] = [5, 24];
    const matrix = blocksOf(bits, height, width, hasOffsets);
    const element = (row: number, column: number) => matrix.elements[row * width + column]!;
    const dot = (count: number, a: (k: number) => number, b: (k: number) => number) =>
      Array.from({ length: count }, (_, k) => a(k) * b(k)).reduce((sum, each) => sum + each, 0);
    const { Tensor } = await loadRuntime();
    const [x, g] = [random(3n, rows * width), random(4n, rows * height)];
    const [xs, gs] = [new Tensor("float32", x, [rows, width]), new Tensor("float32", g, [rows, height])];
    const along = (row: number, column: number) =>
      dot(
        width,
        (k) => x[row * width + k]!,
        (k) => element(column, k),
      );
    const across = (row: number, column: number) =>
      dot(
        height,
        (n) => g[row * height + n]!,
        (n) => element(n, column),
      );
    const [wide, high] = [{ xShape: ["rows", width] }, { xShape: ["rows", height] }];

    // A matrix [in, out] and a table [V, H] have their rows in different dimensions.
    const [matrixShape, tableShape] = [
      [width, height],
      [height, width],
    ] as const;
    const ofMatrix = (build: (a: Value, w: Value) => Value, of: typeof wide) =>
      compiled(matrix, matrixShape, { isTransposed: true }, build, of);
    const ofTable = (build: (a: Value, w: Value) => Value, of: typeof wide) =>
      compiled(matrix, tableShape, { isTransposed: false }, build, of);
    check(await (await ofMatrix((a, w) => matmul(a, w), wide))(xs), [rows, height], along, 1e-4);
    check(await (await ofTable((a, w) => matmul(a, w, { transposeB: true }), wide))(xs), [rows, height], along, 1e-4);
    check(await (await ofMatrix((a, w) => matmul(a, w, { transposeB: true }), high))(gs), [rows, width], across, 1e-4);
    check(await (await ofTable((a, w) => matmul(a, w), high))(gs), [rows, width], across, 1e-4);
    const scaled = await ofMatrix((a, w) => matmul(a, w, { transposeB: true, scale: -3, plus: matmul(a, w, { transposeB: true }) }), high);
    check(await scaled(gs), [rows, width], (row, column) => -2 * across(row, column), 5e-4);

    const shared = { isTransposed: false, isShared: true };
    const both = (a: Value, w: Value) =>
      concat([matmul(a, w, { transposeB: true }), matmul(matmul(a, w, { transposeB: true }), w)], 1, height + width);
    const chained = await (await compiled(matrix, tableShape, shared, both, wide))(xs);
    const product = Float64Array.from({ length: rows * height }, (_, i) => along(Math.floor(i / height), i % height));
    const chain = (row: number, column: number) =>
      column < height
        ? product[row * height + column]!
        : dot(
            height,
            (n) => product[row * height + n]!,
            (n) => element(n, column - height),
          );
    check(chained, [rows, height + width], chain, 1e-3);

    const gather = await compiled(matrix, tableShape, { isTransposed: false }, (ids, table) => gatherRows(table, ids), {
      xShape: ["rows"],
    });
    const ids = [7, 0, 23, 7];
    const gathered = await gather(new Tensor("int64", BigInt64Array.from(ids, BigInt), [ids.length]));
    check(gathered, [ids.length, width], (row, column) => element(ids[row]!, column), 1e-6);
  },
);

test.each([
  { bits: 4, rows: "float32", hasOffsets: false },
  { bits: 4, rows: "float32", hasOffsets: true },
  { bits: 4, rows: "int8", hasOffsets: true },
  { bits: 8, rows: "int8", hasOffsets: false },
] as const)(
  "a row times a constant matrix in $bits bits has the same bits for any number of rows and threads, rows in $rows, offsets: $hasOffsets",
  async ({ bits, rows, hasOffsets }) => {
    const [width, height] = [160, 200];
    const matrix = blocksOf(bits, height, width, hasOffsets);
    const { Tensor } = await loadRuntime();
    const x = random(5n, 300 * width);
    const run = async (threads: number) => {
      const options = { xShape: ["rows", width], isConstant: true, threads };
      return compiled(matrix, [width, height], { isTransposed: true, rows }, (a, w) => matmul(a, w), options);
    };
    const [one, two] = [await run(1), await run(2)];
    const expected = await one(new Tensor("float32", x, [300, width]));
    for (const wanted of [1, 2, 3, 8, 31, 127, 128, 129, 200, 256, 257]) {
      const count = productRows(wanted);
      const part = new Tensor("float32", x.slice(0, count * width), [count, width]);
      for (const program of [one, two])
        expect(bytesOf(await program(part)).equals(bytesOf(expected.subarray(0, count * height)))).toBe(true);
    }
    if (rows === "int8") {
      // A row of values below 1 is rounded to multiples of at most 1 / 127.
      const element = (row: number, column: number) => matrix.elements[row * width + column]!;
      const largest = Math.max(...matrix.elements.map(Math.abs));
      const exact = (row: number, column: number) => {
        let sum = 0;
        for (let k = 0; k < width; k++) sum += x[row * width + k]! * element(column, k);
        return sum;
      };
      check(expected, [300, height], exact, (largest * width) / 254);
    }
  },
);

test("rejects other readers of a matrix in blocks, and other shapes", () => {
  const stored = new Map([["w", { bits: 4, isTransposed: true, hasOffsets: false, rows: "float32" }]] as const);
  const lowered = (build: (x: Value, w: Value) => Value, shape: readonly number[] = [64, 32]) => {
    const graph = new Graph();
    graph.output("y", build(graph.input("x", ["rows", 64]), graph.input("w", shape)));
    return () => lower(graph, CPU_LOWERINGS, { stored });
  };
  expect(lowered((x, w) => matmul(x, w))).not.toThrow();
  for (const build of [(_: Value, w: Value) => transpose(w, [1, 0]), (_: Value, w: Value) => add(w, w)]) {
    expect(lowered(build)).toThrow(ShapeError);
    expect(lowered(build)).toThrow("Expected a matrix in blocks to be the right operand of a product or a table of rows");
  }
  expect(lowered((_, w) => add(w, w), [64])).toThrow('to be a matrix of fixed size, got "w" of shape [64]');
});

test("the runtime dequantizes each matrix directly before its product, and a shared one once", async () => {
  const stored = (isShared: boolean): StoredFormats =>
    new Map([0, 1, 2].map((i) => [`w${i}`, { bits: 4, isTransposed: true, hasOffsets: false, rows: "float32", isShared }]));
  const graph = new Graph();
  const weights = [0, 1, 2].map((i) => graph.input(`w${i}`, [64, 64]));
  const hidden = weights.reduce((x, w) => matmul(x, w), graph.input("x", ["R", 64]));
  // Backward, in the opposite order.
  graph.output(
    "y",
    weights.reduceRight((x, w) => matmul(x, w, { transposeB: true }), hidden),
  );
  const products = async (isShared: boolean) => {
    const { InferenceSession, Tensor } = await loadRuntime();
    const prefix = await newProfile();
    onTestFinished(() => dropProfile(prefix));
    const session = await InferenceSession.create(writeOnnx(cpu.lower(graph, { stored: stored(isShared) }), "order"), {
      enableProfiling: true,
      profileFilePrefix: prefix,
      ...cpu.sessionOptions([], true),
    });
    const q = new Tensor("uint8", new Uint8Array(64 * 32), [64, 2, 16]);
    const scales = new Tensor("float32", new Float32Array(128), [64, 2]);
    const feeds = weights.flatMap(({ name }) => [[blockNames(name).q, q] as const, [blockNames(name).scales, scales] as const]);
    await session.run({ x: new Tensor("float32", new Float32Array(128), [2, 64]), ...Object.fromEntries(feeds) });
    session.endProfiling();
    const [file] = await readdir(dirname(prefix));
    const events = JSON.parse(await readFile(join(dirname(prefix), file!), "utf8")) as { name: string; args?: { op_name?: string } }[];
    const ops = events.filter(({ name }) => name.endsWith("_kernel_time")).map(({ args }) => args!.op_name!);
    await session.release();
    return ops.filter((op) => ["MatMulNBits", "DequantizeLinear", "MatMul", "Gemm"].includes(op));
  };
  const backward = ["DequantizeLinear", "MatMul"];
  expect(await products(false)).toEqual([...weights.map(() => "MatMulNBits"), ...weights.flatMap(() => backward)]);
  expect(await products(true)).toEqual([...weights.flatMap(() => ["DequantizeLinear", "Gemm"]), ...weights.map(() => "MatMul")]);
});
