/** Attention over a cache against the formula in float64, and its bits against other companies, capacities and cuts. */
import { describe, expect, test } from "vitest";
import { cachedAttention, Graph } from "../../../../src/engine/onnx/graph/index.ts";
import { loadRuntime, Program, type Tensors } from "../../../../src/engine/onnx/runtime/program.ts";
import { uniform } from "../../../../src/base/util/rng.ts";

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly d: number;
}
const SHAPES: readonly Shape[] = [
  { heads: 4, kvHeads: 2, d: 32 },
  { heads: 9, kvHeads: 3, d: 64 },
  { heads: 2, kvHeads: 2, d: 8 },
];
const { Tensor } = await loadRuntime();
const random = (seed: number, length: number) => Float32Array.from({ length }, (_, i) => 2 * uniform(BigInt(seed), i) - 1);

async function compile({ heads, kvHeads, d }: Shape): Promise<Program> {
  const graph = new Graph();
  const width = (heads + 2 * kvHeads) * d;
  const { mixed, keys, values } = cachedAttention({
    projected: graph.input("projected", ["batch", "time", width]),
    past: {
      keys: graph.input("past_k", ["batch", kvHeads, "capacity", d]),
      values: graph.input("past_v", ["batch", kvHeads, "capacity", d]),
    },
    capacity: "capacity",
    lastPositions: graph.input("last_places", ["batch"], "int32"),
    total: graph.input("total", [1], "int32"),
    heads,
    kvHeads,
    headSize: d,
  });
  graph.output("mixed", mixed);
  graph.output("k", keys);
  graph.output("v", values);
  return Program.compile(graph, "attention", { threads: 1 });
}

/** Runs rows of equal length through a cache of a capacity, cut at the given places; returns `[B, T, h·d]`. */
async function attend(
  program: Program,
  { heads, kvHeads, d }: Shape,
  rows: readonly Float32Array[],
  capacity: number,
  cuts: readonly number[],
) {
  const width = (heads + 2 * kvHeads) * d;
  const time = rows[0]!.length / width;
  const cache = () => new Tensor("float32", new Float32Array(rows.length * kvHeads * capacity * d), [rows.length, kvHeads, capacity, d]);
  const [keys, values] = [cache(), cache()];
  const mixed = rows.map(() => new Float32Array(time * heads * d));
  let start = 0;
  for (const end of [...cuts, time]) {
    const piece = new Float32Array(rows.length * (end - start) * width);
    rows.forEach((row, b) => piece.set(row.subarray(start * width, end * width), b * (end - start) * width));
    const feeds: Tensors = {
      projected: new Tensor("float32", piece, [rows.length, end - start, width]),
      past_k: keys,
      past_v: values,
      last_places: new Tensor("int32", new Int32Array(rows.length).fill(end - 1), [rows.length]),
      total: new Tensor("int32", Int32Array.of(end), [1]),
    };
    const result = (await program.run(feeds, { mixed: null, k: keys, v: values }))["mixed"]!.data as Float32Array;
    const size = (end - start) * heads * d;
    mixed.forEach((all, b) => all.set(result.subarray(b * size, (b + 1) * size), start * heads * d));
    start = end;
  }
  return mixed;
}

/** `softmax(q·kᵀ/√d)·v` of each head in float64. */
function formula({ heads, kvHeads, d }: Shape, row: Float32Array): Float64Array {
  const width = (heads + 2 * kvHeads) * d;
  const time = row.length / width;
  const at = (t: number, head: number, i: number) => row[t * width + head * d + i]!;
  const mixed = new Float64Array(time * heads * d);
  for (let t = 0; t < time; t++) {
    for (let head = 0; head < heads; head++) {
      const kv = Math.floor(head / (heads / kvHeads));
      const scores = Array.from({ length: t + 1 }, (_, s) => {
        let sum = 0;
        for (let i = 0; i < d; i++) sum += at(t, head, i) * at(s, heads + kv, i);
        return Math.exp(sum / Math.sqrt(d));
      });
      const total = scores.reduce((a, b) => a + b, 0);
      for (let i = 0; i < d; i++)
        mixed[(t * heads + head) * d + i] = scores.reduce((sum, score, s) => sum + score * at(s, heads + kvHeads + kv, i), 0) / total;
    }
  }
  return mixed;
}

const isSame = (a: Float32Array, b: Float32Array) => Buffer.compare(new Uint8Array(a.buffer), new Uint8Array(b.buffer)) === 0;

describe.each(SHAPES)("$heads heads of $d over $kvHeads", (shape) => {
  const rowOf = (seed: number, time: number) => random(seed, time * (shape.heads + 2 * shape.kvHeads) * shape.d);

  test("matches the formula in float64", async () => {
    const row = rowOf(1, 48);
    const [mixed] = await attend(await compile(shape), shape, [row], 64, [16, 32]);
    const expected = formula(shape, row);
    mixed!.forEach((value, i) => expect(Math.abs(value - expected[i]!)).toBeLessThan(1e-5));
  });

  test.each([48, 160, 528])("is bit-identical for %i tokens in any chunks, cache capacity and batch", async (time) => {
    const program = await compile(shape);
    const row = rowOf(2, time);
    const [expected] = await attend(program, shape, [row], time, []);
    for (const step of [16, 48, 112, 512]) {
      const cuts = Array.from({ length: Math.ceil(time / step) - 1 }, (_, i) => (i + 1) * step);
      expect(isSame((await attend(program, shape, [row], 576, cuts))[0]!, expected!)).toBe(true);
    }
    const company = await attend(program, shape, [rowOf(3, time), row, rowOf(4, time)], time + 64, []);
    expect(isSame(company[1]!, expected!)).toBe(true);
  });
});
