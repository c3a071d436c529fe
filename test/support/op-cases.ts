/** Cases of the op catalogue, for every device. */
import * as g from "../../src/engine/onnx/graph/index.ts";
import type { Dim, Value } from "../../src/engine/onnx/graph/index.ts";
import { type Array64, array64 } from "./graph-interpreter.ts";

/** Deterministic values in (-1, 1); a plain linear congruence, so that the test shares nothing with the code under test. */
function noise(count: number, seed: number): Float64Array {
  let state = (seed * 2654435761 + 12345) >>> 0;
  return Float64Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.fround((state / 2 ** 32) * 2 - 1);
  });
}

interface InputSpec {
  readonly shape: readonly Dim[];
  /** Values drawn in [0, classes): an index input. */
  readonly classes?: number;
  /** Shifted so that the op is smooth there. */
  readonly offset?: number;
  readonly scale?: number;
  readonly isFixed?: boolean;
}

/** Op under test: its inputs and sizes. */
export interface OpCase {
  readonly name: string;
  readonly inputs: readonly InputSpec[];
  readonly build: (values: Value[]) => Value;
  /** Sizes of named dimensions for finite differences, and at production size. */
  readonly small: Record<string, number>;
  readonly large: Record<string, number>;
}

const dims = (shape: readonly Dim[], sizes: Record<string, number>) => shape.map((dim) => (typeof dim === "number" ? dim : sizes[dim]!));
const R = { small: { R: 3, B: 2, T: 3 }, large: { R: 2048, B: 16, T: 64 } };
const matrix: InputSpec = { shape: ["R", 24] };

export const CASES: OpCase[] = [
  { name: "add with broadcasting", inputs: [matrix, { shape: [24] }], build: ([a, b]) => g.add(a!, b!), ...R },
  { name: "sub with broadcasting", inputs: [matrix, { shape: ["R", 1] }], build: ([a, b]) => g.sub(a!, b!), ...R },
  { name: "mul with broadcasting", inputs: [{ shape: [1, 24] }, matrix], build: ([a, b]) => g.mul(a!, b!), ...R },
  { name: "div", inputs: [matrix, { shape: ["R", 24], offset: 3 }], build: ([a, b]) => g.div(a!, b!), ...R },
  { name: "neg", inputs: [matrix], build: ([a]) => g.neg(a!), ...R },
  { name: "exp", inputs: [matrix], build: ([a]) => g.exp(a!), ...R },
  { name: "sqrt", inputs: [{ shape: ["R", 24], offset: 2 }], build: ([a]) => g.sqrt(a!), ...R },
  { name: "sigmoid", inputs: [{ shape: ["R", 24], scale: 4 }], build: ([a]) => g.sigmoid(a!), ...R },
  { name: "silu", inputs: [{ shape: ["R", 24], scale: 4 }], build: ([a]) => g.silu(a!), ...R },
  { name: "geluTanh", inputs: [{ shape: ["R", 24], scale: 4 }], build: ([a]) => g.geluTanh(a!), ...R },
  { name: "minimum", inputs: [matrix, matrix], build: ([a, b]) => g.minimum(a!, b!), ...R },
  { name: "maximum", inputs: [matrix, { shape: [24] }], build: ([a, b]) => g.maximum(a!, b!), ...R },
  {
    name: "where",
    inputs: [matrix, matrix, { shape: ["R", 24], isFixed: true }],
    build: ([a, b, c]) => g.where(g.lessOrEqual(c!, c!.graph.scalar(0)), a!, b!),
    ...R,
  },
  { name: "reduceSum", inputs: [matrix], build: ([a]) => g.reduceSum(a!, [0]), ...R },
  { name: "sumAll", inputs: [matrix], build: ([a]) => g.sumAll(a!), ...R },
  { name: "reshape with two named dimensions", inputs: [{ shape: ["B", "T", 24] }], build: ([a]) => g.reshape(a!, ["B", 24, "T"]), ...R },
  { name: "transpose", inputs: [{ shape: ["B", "T", 4, 6] }], build: ([a]) => g.transpose(a!, [0, 2, 1, 3]), ...R },
  { name: "expandTo", inputs: [{ shape: ["R", 1] }], build: ([a]) => g.expandTo(a!, ["R", 24]), ...R },
  { name: "concat", inputs: [matrix, { shape: ["R", 8] }], build: ([a, b]) => g.concat([a!, b!], 1, 32), ...R },
  { name: "split, one part unused", inputs: [matrix], build: ([a]) => g.split(a!, 1, [8, 4, 12])[1]!, ...R },
  { name: "matmul", inputs: [matrix, { shape: [24, 40] }], build: ([a, b]) => g.matmul(a!, b!), ...R },
  { name: "matmul, b transposed", inputs: [matrix, { shape: [40, 24] }], build: ([a, b]) => g.matmul(a!, b!, { transposeB: true }), ...R },
  { name: "matmul, a transposed", inputs: [matrix, { shape: ["R", 8] }], build: ([a, b]) => g.matmul(a!, b!, { transposeA: true }), ...R },
  {
    name: "matmul, both transposed and scaled",
    inputs: [{ shape: [24, "R"] }, { shape: [8, 24] }],
    build: ([a, b]) => g.matmul(a!, b!, { transposeA: true, transposeB: true, scale: 0.5 }),
    ...R,
  },
  {
    name: "adaptedProduct",
    inputs: [matrix, { shape: [24, 40], isFixed: true }, { shape: [24, 4] }, { shape: [4, 40] }],
    build: ([x, w, a, b]) => g.adaptedProduct(x!, w!, a!, b!),
    ...R,
  },
  {
    name: "adaptedProduct, not merged",
    inputs: [matrix, { shape: [24, 40], isFixed: true }, { shape: [24, 4] }, { shape: [4, 40] }],
    build: ([x, w, a, b]) => g.adaptedProduct(x!, w!, a!, b!, { isMerged: false }),
    ...R,
  },
  // The sum of the forward pass is long, then the sum of the backward pass.
  ...(
    [
      [24, 8],
      [8, 24],
    ] as const
  ).map(([height, width]): OpCase => ({
    name: `adaptedProduct, joined, ${height} × ${width}`,
    inputs: [{ shape: ["R", height] }, { shape: [height, width], isFixed: true }, { shape: [height, 4] }, { shape: [4, width] }],
    build: ([x, w, a, b]) => {
      const scale = x!.graph.scalar(0.5);
      return g.adaptedProduct(x!, w!, a!, g.mul(b!, scale), { isMerged: false, joined: { unscaled: b!, scale } });
    },
    ...R,
  })),
  {
    name: "after",
    inputs: [matrix, { shape: ["R", 1] }, { shape: [40, 2], isFixed: true }],
    build: ([x, a, b]) => g.mul(g.after(x!, [a!, b!]), a!),
    ...R,
  },
  {
    name: "blockDiagonal",
    inputs: [matrix, { shape: [4, 16] }, { shape: [4, 8] }, { shape: [16, 12] }],
    build: ([x, a, b, c]) => g.matmul(x!, g.blockDiagonal([a!, b!, c!])),
    ...R,
  },
  {
    name: "batched matmul, b transposed and scaled",
    inputs: [{ shape: ["B", 2, "T", 8] }, { shape: ["B", 2, "T", 8] }],
    build: ([a, b]) => g.matmul(a!, b!, { transposeB: true, scale: 0.35 }),
    ...R,
  },
  {
    name: "batched matmul",
    inputs: [{ shape: ["B", 2, "T", 8] }, { shape: ["B", 2, 8, 5] }],
    build: ([a, b]) => g.matmul(a!, b!),
    ...R,
  },
  { name: "softmax", inputs: [{ shape: ["B", 2, "T", "T"], scale: 4 }], build: ([a]) => g.softmax(a!), ...R },
  { name: "logSoftmax", inputs: [{ shape: ["R", 24], scale: 4 }], build: ([a]) => g.logSoftmax(a!), ...R },
  { name: "rmsNorm", inputs: [matrix, { shape: [24], offset: 1 }], build: ([a, b]) => g.rmsNorm(a!, b!, 1e-5), ...R },
  {
    name: "rotaryEmbedding",
    inputs: [
      { shape: ["B", 2, "T", 8] },
      { shape: ["B", "T"], classes: 64 },
      { shape: [64, 4], isFixed: true },
      { shape: [64, 4], isFixed: true },
    ],
    build: ([x, positions, cos, sin]) => g.rotaryEmbedding(x!, positions!, cos!, sin!),
    ...R,
  },
  {
    name: "attention, one block",
    inputs: [
      { shape: ["B", 2, "GT", 8], scale: 2 },
      { shape: ["B", 2, "T", 8], scale: 2 },
      { shape: ["B", 2, "T", 8] },
      { shape: ["B", 1, "GT", "T"], isFixed: true },
    ],
    build: ([q, k, v, mask]) => g.attention(q!, k!, v!, { group: 2, scale: 0.35, masks: [mask!], block: "T", time: "T", recompute: false }),
    small: { B: 2, T: 3, GT: 6 },
    large: { B: 16, T: 64, GT: 128 },
  },
  ...[false, true].map((recompute): OpCase => ({
    name: `attention, three blocks of queries${recompute ? ", recomputed for the gradient" : ""}`,
    inputs: [
      { shape: ["B", 2, "GT", 8], scale: 2 },
      { shape: ["B", 2, "T", 8], scale: 2 },
      { shape: ["B", 2, "T", 8] },
      { shape: [1, 1, "rows", "t"], isFixed: true },
      { shape: [1, 1, "rows", "2t"], isFixed: true },
      { shape: [1, 1, "rows", "T"], isFixed: true },
    ],
    build: ([q, k, v, ...masks]) => g.attention(q!, k!, v!, { group: 2, scale: 0.35, masks, block: "t", time: "T", recompute }),
    small: { B: 2, T: 6, GT: 12, rows: 4, t: 2, "2t": 4 },
    large: { B: 4, T: 192, GT: 384, rows: 128, t: 64, "2t": 128 },
  })),
  {
    name: "attention, two blocks of queries with other keys before their own",
    inputs: [
      { shape: ["B", 2, "GT", 8], scale: 2 },
      { shape: ["B", 2, "P+2t", 8], scale: 2 },
      { shape: ["B", 2, "P+2t", 8] },
      { shape: ["B", 1, "rows", "P+t"], isFixed: true },
      { shape: ["B", 1, "rows", "P+2t"], isFixed: true },
      { shape: [1, 1, "t", "T"], isFixed: true },
    ],
    build: ([q, k, v, ...masks]) =>
      g.attention(q!, k!, v!, { group: 2, scale: 0.35, masks: masks.slice(0, 2), block: "t", time: "T", recompute: true }),
    small: { B: 2, T: 4, GT: 8, rows: 4, t: 2, "P+t": 5, "P+2t": 7 },
    large: { B: 4, T: 128, GT: 256, rows: 128, t: 64, "P+t": 104, "P+2t": 168 },
  },
  {
    name: "gatherRows, ids repeat heavily",
    inputs: [{ shape: [7, 24] }, { shape: ["R"], classes: 7 }],
    build: ([a, b]) => g.gatherRows(a!, b!),
    ...R,
  },
  {
    name: "gatherFromPieces, pieces of two sizes",
    inputs: [{ shape: [3, 24] }, { shape: [3, 24] }, { shape: [1, 24] }, { shape: ["R"], classes: 7 }],
    build: ([a, b, c, ids]) => g.gatherFromPieces([a!, b!, c!], ids!),
    ...R,
  },
  {
    name: "targetLogprob",
    inputs: [
      { shape: ["R", 24], scale: 4 },
      { shape: ["R"], classes: 24 },
    ],
    build: ([a, b]) => g.targetLogprob(a!, b!).logprob,
    ...R,
  },
];

/** `Σ output · noise`, so that every element of the output has its own cotangent, and its gradients. */
export function build(op: OpCase): { graph: g.Graph; variables: string[] } {
  const graph = new g.Graph();
  const inputs = op.inputs.map((spec, i) => graph.input(`x${i}`, spec.shape, spec.classes ? "int64" : "float32"));
  const output = op.build(inputs);
  const cotangent = graph.input("cotangent", output.shape);
  const loss = g.sumAll(g.mul(output, cotangent));
  const variables = inputs.filter((_, i) => !op.inputs[i]!.classes && !op.inputs[i]!.isFixed);
  graph.output("output", output);
  graph.output("loss", loss);
  g.differentiate(loss, variables).forEach((gradient, i) => graph.output(`d_${variables[i]!.name}`, gradient));
  return { graph, variables: variables.map((v) => v.name) };
}

/** Draws deterministic inputs. */
export function feedsOf(op: OpCase, graph: g.Graph, sizes: Record<string, number>): Record<string, Array64> {
  const feeds: Record<string, Array64> = {};
  for (const input of graph.inputs) {
    const spec = op.inputs[Number(input.name.slice(1))];
    const shape = dims(input.shape, sizes);
    const raw = noise(
      shape.reduce((a, b) => a * b, 1),
      input.name.length * 7 + (spec ? Number(input.name.slice(1)) : 99),
    );
    const data = spec?.classes
      ? raw.map((v) => Math.floor(((v + 1) / 2) * spec.classes!))
      : raw.map((v) => Math.fround(v * (spec?.scale ?? 1) + (spec?.offset ?? 0)));
    feeds[input.name] = array64(shape, data);
  }
  return feeds;
}

/** Declares that there are few rows. */
const withFewRows = (x: Value | undefined): Value => {
  x!.graph.smallDims.add("R");
  return x!;
};

/** Cases of shapes that a device computes in another way; too large for finite differences. */
export const DEVICE_CASES: OpCase[] = [
  {
    name: "matmul of few rows, b transposed and tall",
    inputs: [matrix, { shape: [200, 24] }],
    build: ([a, b]) => g.matmul(withFewRows(a), b!, { transposeB: true }),
    ...R,
  },
  {
    name: "split, more pieces than a kernel can write",
    inputs: [{ shape: [120] }],
    build: ([a]) => {
      const sizes = Array.from({ length: 60 }, (_, i) => 1 + (i % 3));
      return g.concat(g.split(a!, 0, sizes).toReversed(), 0, 120);
    },
    small: {},
    large: {},
  },
  {
    name: "split, more pieces of a named size than a kernel can write",
    inputs: [{ shape: ["T", 3] }, { shape: ["S"] }],
    build: ([a, b]) => {
      const pieces = g.split(
        a!,
        0,
        Array.from({ length: 10 }, () => "S"),
      );
      return g.mul(g.concat(pieces.toReversed(), 0, "T"), g.sumAll(b!));
    },
    small: { T: 40, S: 4 },
    large: { T: 40, S: 4 },
  },
  {
    name: "matmul of few rows, long sum",
    inputs: [{ shape: ["R", 2 ** 14] }, { shape: [2 ** 14, 8] }],
    build: ([a, b]) => g.matmul(withFewRows(a), b!),
    small: { R: 3 },
    large: { R: 64 },
  },
  {
    name: "matmul of few rows, b transposed, long sum, scaled and added",
    inputs: [{ shape: ["R", 2 ** 14] }, { shape: [8, 2 ** 14] }, { shape: ["R", 8] }],
    build: ([a, b, plus]) => g.matmul(withFewRows(a), b!, { transposeB: true, scale: 0.5, plus: plus! }),
    small: { R: 3 },
    large: { R: 64 },
  },
  {
    name: "batched matmul, b transposed, sum of no multiple of four",
    inputs: [{ shape: ["B", 2, "R", 13] }, { shape: ["B", 2, "K", 13] }],
    build: ([a, b]) => g.matmul(a!, b!, { transposeB: true, scale: 0.5 }),
    small: { B: 2, R: 7, K: 6 },
    large: { B: 2, R: 7, K: 6 },
  },
  {
    name: "matmul, one column, scaled",
    inputs: [matrix, { shape: [24, 1] }],
    build: ([a, b]) => g.matmul(a!, b!, { scale: 0.5 }),
    ...R,
  },
  ...(["reduceSum", "logSoftmax"] as const).map((op): OpCase => ({
    name: `${op} of long rows`,
    inputs: [{ shape: ["R", 2 ** 14] }],
    build: ([x]) => (op === "reduceSum" ? g.reduceSum(x!, [1]) : g.logSoftmax(x!)),
    small: { R: 3 },
    large: { R: 3 },
  })),
  {
    name: "matmul, b transposed, scaled and added",
    inputs: [matrix, { shape: [40, 24] }, { shape: ["R", 40] }],
    build: ([a, b, plus]) => g.matmul(a!, b!, { transposeB: true, scale: 0.5, plus: plus! }),
    ...R,
  },
  // 1, 2, 8 and 16 pieces.
  ...[37, 2046, 2040, 2048].map((rows): OpCase => ({
    name: `matmul, a transposed and wide, ${rows} rows`,
    inputs: [{ shape: ["R", 40] }, { shape: ["R", 4] }],
    build: ([a, b]) => g.matmul(a!, b!, { transposeA: true }),
    small: { R: rows },
    large: { R: rows },
  })),
];
