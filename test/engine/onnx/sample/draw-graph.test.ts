/** Draws inside a graph against their definition in float64, on the processor and, where an adapter is installed, on the device `webgpu`. */
import { describe, expect, test } from "vitest";
import { Graph } from "../../../../src/engine/onnx/graph/index.ts";
import { cpu, type Device, webgpu } from "../../../../src/engine/onnx/runtime/device.ts";
import { loadRuntime, Program } from "../../../../src/engine/onnx/runtime/program.ts";
import {
  BELOW_ONE,
  drawFeeds,
  drawnTokens,
  type DrawnTokens,
  drawOutputs,
  MAX_INVERSE_TEMPERATURE,
} from "../../../../src/engine/onnx/sample/draw-graph.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import { missingAdapter } from "../../../support/adapter.ts";

interface DrawnRow {
  readonly logits: readonly number[];
  readonly u: number;
  readonly temperature: number;
}

/** Runs the graph on rows of equal vocabulary. */
async function drawn(device: Device, rows: readonly DrawnRow[]): Promise<DrawnTokens> {
  const { Tensor } = await loadRuntime();
  const V = rows[0]!.logits.length;
  const graph = new Graph();
  drawOutputs(graph.input("logits", ["selected", V]));
  const program = await Program.compile(graph, "draw", { threads: 1, device });
  const draws = {
    uniforms: Float32Array.from(rows, ({ u, temperature }) => (temperature === 0 ? 0 : u)),
    inverseTemperatures: Float32Array.from(rows, ({ temperature }) => Math.min(1 / temperature, MAX_INVERSE_TEMPERATURE)),
  };
  const logits = new Tensor("float32", Float32Array.from(rows.flatMap((row) => row.logits)), [rows.length, V]);
  const results = await program.run({ logits, ...drawFeeds(Tensor, draws, V) }, ["drawn"]);
  await program.release();
  return drawnTokens(results["drawn"]!.data as Float32Array);
}

function cumulative(weights: readonly number[]): number[] {
  let sum = 0;
  return weights.map((weight) => (sum += weight));
}

/** Rounding of float32 sums, as a fraction of the total weight. */
const TOLERANCE = 2e-6;

/** Checks a token against the definition; returns whether the number is not within the tolerance of a border between tokens. */
function check({ logits, u, temperature }: DrawnRow, id: number, logprob: number): boolean {
  const exact = Array.from(Float32Array.from(logits));
  const max = exact.reduce((a, b) => Math.max(a, b), -Infinity);
  const logTotal = Math.log(exact.reduce((sum, logit) => sum + Math.exp(logit - max), 0));
  expect(Number.isInteger(id) && id >= 0 && id < logits.length, `id ${id}`).toBe(true);
  expect(Math.abs(logprob - (exact[id]! - max - logTotal))).toBeLessThan(1e-5 * Math.max(1, Math.abs(logprob)));
  if (temperature === 0) {
    expect(id).toBe(exact.indexOf(max));
    return true;
  }
  const weights = exact.map((logit) => Math.exp((logit - max) / temperature));
  const sums = cumulative(weights);
  const [target, slack] = [u * sums.at(-1)!, TOLERANCE * sums.at(-1)!];
  expect(weights[id]).toBeGreaterThan(0);
  expect(target).toBeLessThan(sums[id]! + slack);
  expect(target).toBeGreaterThanOrEqual((sums[id - 1] ?? 0) - slack);
  const wanted = sums.findIndex((sum) => sum > target);
  const isClear = target < sums[wanted]! - slack && target >= (sums[wanted - 1] ?? 0) + slack;
  if (isClear) expect(id).toBe(wanted);
  return isClear;
}

const noise = (seed: number, index: number) =>
  Math.sqrt(-2 * Math.log(uniform(BigInt(seed), index))) * Math.cos(2 * Math.PI * uniform(BigInt(seed), index, 1));
const TEMPERATURES = [0, 0.01, 0.7, 1, 1.3, 100];

const devices: readonly (readonly [string, () => Device, boolean])[] = [
  ["cpu", () => cpu, false],
  ["webgpu", () => webgpu(), missingAdapter !== null],
];
describe.each(devices)("on the device %s", (_, create, isMissing) => {
  describe.skipIf(isMissing)("a token drawn in a graph", () => {
    // One block; whole blocks of 512, 256 and 128; padded ones.
    test.each([1, 7, 512, 513, 1000, 2048, 1280, 1664, 20_011])("follows the definition with %i tokens", async (V) => {
      const rows = Array.from({ length: 48 }, (_r, row): DrawnRow => ({
        logits: Array.from({ length: V }, (_t, id) => (row % 3) * 2 * noise(row, id)),
        u: uniform(99n, row),
        temperature: TEMPERATURES[row % TEMPERATURES.length]!,
      }));
      const { ids, logprobs } = await drawn(create(), rows);
      const clear = rows.filter((row, i) => check(row, ids[i]!, logprobs[i]!)).length;
      expect(clear).toBeGreaterThan(V > 10_000 ? 24 : 40);
    });

    test("has a weight above 0, for numbers from 0 to the largest below 1", async () => {
      const V = 1000;
      // Weights of exactly 0 at both ends, between the others, and in whole blocks.
      const sparse = Array.from({ length: V }, (_t, id) =>
        [300, 301, 600, 700].includes(id) ? id / 1000 : id % 2 === 0 ? -1000 : -Infinity,
      );
      const dominated = Array.from({ length: V }, (_t, id) => (id === 777 ? 60 : noise(1, id)));
      const uneven = Array.from({ length: V }, (_t, id) => (id < 500 ? -80 : id === 500 ? 0 : -16));
      const rows = [sparse, dominated, uneven].flatMap((logits) =>
        [0, 1e-30, 2 ** -24, 0.25, 0.5, 0.999, BELOW_ONE].flatMap((u) => [0, 0.5, 1].map((temperature) => ({ logits, u, temperature }))),
      );
      const { ids, logprobs } = await drawn(create(), rows);
      rows.forEach((row, i) => check(row, ids[i]!, logprobs[i]!));
      expect(new Set(rows.flatMap(({ logits }, i) => (logits === sparse ? [ids[i]] : [])))).toEqual(new Set([300, 301, 600, 700]));
    });

    test("is next to the border of two blocks, for numbers within the rounding of the border", async () => {
      const [V, border] = [1024, 512];
      const rows = Array.from({ length: 16 }, (_s, seed) => Array.from({ length: V }, (_t, id) => noise(seed, id))).flatMap((logits) => {
        const sums = cumulative(logits.map((logit) => Math.exp(logit)));
        return Array.from({ length: 33 }, (_r, i) => ({
          logits,
          u: sums[border - 1]! / sums.at(-1)! + (i - 16) * 2 ** -25,
          temperature: 1,
        }));
      });
      const { ids, logprobs } = await drawn(create(), rows);
      rows.forEach((row, i) => check(row, ids[i]!, logprobs[i]!));
    });

    test("at temperature 0 is the first of the largest logits", async () => {
      const V = 1500;
      const tied = (ids: readonly number[], value: number) =>
        Array.from({ length: V }, (_t, id) => (ids.includes(id) ? value : value - 1e-6));
      const rows = [tied([3, 4, 1400], 0.5), tied([1023, 1024], 0.5), tied([1499], -0.25), new Array<number>(V).fill(0)];
      const { ids } = await drawn(
        create(),
        rows.map((logits) => ({ logits, u: 0.9, temperature: 0 })),
      );
      expect([...ids]).toEqual([3, 1023, 1499, 0]);
    });

    test("has a log-probability that is not finite if a logit of its row is NaN or infinite, and other rows are not affected", async () => {
      const V = 700;
      const logits = (id: number, value: number) => Array.from({ length: V }, (_t, i) => (i === id ? value : noise(2, i)));
      const rows = [
        ...[0, 350, 699].flatMap((id) => [logits(id, NaN), logits(id, Infinity)]),
        new Array<number>(V).fill(NaN),
        logits(5, 1),
      ].flatMap((row) => [0, 1].map((temperature) => ({ logits: row, u: 0.5, temperature })));
      const { ids, logprobs } = await drawn(create(), rows);
      rows.slice(0, -2).forEach((_row, i) => expect(Number.isFinite(logprobs[i]), `row ${i}`).toBe(false));
      rows.slice(-2).forEach((row, i) => check(row, ids.at(i - 2)!, logprobs.at(i - 2)!));
    });
  });
});
