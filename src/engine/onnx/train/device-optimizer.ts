/** Global-norm clipping and AdamW on a device, where parameters, moments and gradients stay. */
import type { AdamParams } from "../../../training-rows.ts";
import { add, concat, div, expandTo, Graph, mul, reduceSum, reshape, sqrt, sub, sumAll, type Value } from "../graph/index.ts";
import type { Layout, Parameter } from "../model/parameters.ts";
import type { DeviceMemory } from "../runtime/device-memory.ts";
import type { DeviceVector } from "../runtime/device-vector.ts";
import { ProgramCache } from "../runtime/program-cache.ts";
import { loadRuntime, Program, type Tensors } from "../runtime/program.ts";
import type { AdamScalars } from "./adam-kernel.ts";
import { mayOverflow, scalarsOf } from "./optimizer.ts";
import { requireFiniteGradient, requireFiniteWeights } from "./require-finite.ts";

/** Vectors of a model in a device's memory. */
export interface DeviceVectors {
  readonly parameters: DeviceVector;
  readonly gradients: DeviceVector;
  readonly first: DeviceVector;
  readonly second: DeviceVector;
}

const SCALARS = [
  "clip",
  "beta1",
  "oneMinusBeta1",
  "beta2",
  "oneMinusBeta2",
  "shrink",
  "scaledRate",
  "correction",
  "epsilon",
] as const satisfies readonly (keyof AdamScalars)[];

/** Max tensors that one run updates: a run has a fixed cost of a millisecond, and its graph some 20 nodes per tensor. */
const MAX_UPDATED_TENSORS = 64;
/** Max bytes of the parameters that one run updates: old and new values are in memory during it. */
const MAX_UPDATED_BYTES = 2 ** 26;

/** Optimizer of all models of a device; the formula is the one of {@link AdamScalars}. */
export class DeviceOptimizer {
  readonly #memory: DeviceMemory;
  readonly #programs = new ProgramCache(16);

  constructor(memory: DeviceMemory) {
    this.#memory = memory;
  }

  /**
   * Takes one step: clips by the global norm and updates parameters and moments. Only the norm leaves the device.
   *
   * @param step - Number of this step, from 1.
   * @returns The global gradient norm before clipping.
   * @throws NonFiniteError `E_NON_FINITE` naming the tensor if the norm or an updated weight is not finite; then parameters and moments are
   *   unchanged.
   */
  async step(vectors: DeviceVectors, layout: Layout, adam: AdamParams, step: number): Promise<number> {
    const gradNorm = await this.#norm(vectors.gradients, layout);
    if (!Number.isFinite(gradNorm)) requireFiniteGradient(layout, await vectors.gradients.download(layout.length), gradNorm);
    const { decayed, rest } = scalarsOf(adam, gradNorm, step);
    const before = mayOverflow(decayed)
      ? { parameters: vectors.parameters.clone(), first: vectors.first.clone(), second: vectors.second.clone() }
      : null;
    const isDecayed = ({ offset }: Parameter) => offset < layout.decayed;
    for (const group of groupsOf(layout.parameters.filter(isDecayed))) await this.#update(vectors, group, decayed);
    for (const group of groupsOf(layout.parameters.filter((each) => !isDecayed(each)))) await this.#update(vectors, group, rest);
    if (before === null) return gradNorm;
    try {
      requireFiniteWeights({ layout, parameters: await vectors.parameters.download(layout.length) });
      for (const vector of Object.values(before)) vector.release();
    } catch (error) {
      for (const [name, vector] of Object.entries(before)) vectors[name as keyof typeof before].become(vector);
      throw error;
    }
    return gradNorm;
  }

  async #norm(gradients: DeviceVector, { parameters }: Layout): Promise<number> {
    const shapes = parameters.map(({ name, shape }) => [name, shape] as const);
    const program = await this.#programs.get(JSON.stringify(shapes), () =>
      Program.compile(normGraph(shapes), "gradient-norm", { threads: 1, device: this.#memory.device }),
    );
    const { gradient_norm: norm } = await program.run(gradients.feeds(), ["gradient_norm"]);
    return (norm!.data as Float32Array)[0]!;
  }

  /** Updates parameters and moments of some parameters in one run. */
  async #update(vectors: DeviceVectors, parameters: readonly Parameter[], scalars: AdamScalars): Promise<void> {
    const { Tensor } = await loadRuntime();
    const ranks = parameters.map(({ shape }) => shape.length);
    const program = await this.#programs.get(`ranks ${ranks.join(",")}`, () =>
      Program.compile(updateGraph(ranks), "adamw", { threads: 1, device: this.#memory.device, resident: () => true }),
    );
    const feeds: Tensors = Object.fromEntries(SCALARS.map((each) => [each, new Tensor("float32", Float32Array.of(scalars[each]), [])]));
    const held = [
      ["p", vectors.parameters],
      ["m", vectors.first],
      ["v", vectors.second],
    ] as const;
    parameters.forEach(({ name }, at) => {
      for (const [letter, vector] of [...held, ["g", vectors.gradients] as const]) feeds[letter + at] = vector.get(name).tensor;
    });
    const results = await program.run(
      feeds,
      parameters.flatMap((_, at) => held.map(([letter]) => `${letter}${at}_next`)),
    );
    parameters.forEach(({ name }, at) => {
      for (const [letter, vector] of held) vector.set(name, this.#memory.adopt(results[`${letter}${at}_next`]!));
    });
  }
}

/** Cuts parameters into groups that are updated in one run each. */
function groupsOf(parameters: readonly Parameter[]): Parameter[][] {
  const groups: Parameter[][] = [];
  let bytes = Infinity;
  for (const parameter of parameters) {
    const own = 4 * parameter.size;
    if (groups.length === 0 || groups.at(-1)!.length === MAX_UPDATED_TENSORS || bytes + own > MAX_UPDATED_BYTES) {
      groups.push([]);
      bytes = 0;
    }
    groups.at(-1)!.push(parameter);
    bytes += own;
  }
  return groups;
}

/** Number of row sums that are added up in one piece. */
const ROWS = 512;

/**
 * Builds the graph of the norm `√Σ x²` of all tensors. Sums the rows of each tensor, then rows in pieces, then the pieces: one running sum
 * over millions of squares loses three digits.
 */
function normGraph(shapes: readonly (readonly [name: string, shape: readonly number[]])[]): Graph {
  const graph = new Graph();
  const sums = shapes.map(([name, shape]) => {
    const x = graph.input(name, shape);
    const rows = shape.slice(0, -1).reduce((a, b) => a * b, 1);
    return reshape(reduceSum(mul(x, x), [shape.length - 1]), [rows]);
  });
  const count = sums.reduce((sum, { shape }) => sum + (shape[0] as number), 0);
  const pieces = Math.ceil(count / ROWS);
  const filling = expandTo(graph.scalar(0), [pieces * ROWS - count]);
  const all = concat(pieces * ROWS === count ? sums : [...sums, filling], 0, pieces * ROWS);
  graph.output("gradient_norm", sqrt(sumAll(reduceSum(reshape(all, [pieces, ROWS]), [1]))));
  return graph;
}

/**
 * Builds the update of tensors of the given ranks: inputs `p0`, `m0`, `v0`, `g0`, `p1`, … and the scalars, outputs `p0_next`, `m0_next`,
 * `v0_next`, ….
 */
function updateGraph(ranks: readonly number[]): Graph {
  const graph = new Graph();
  const scalar = Object.fromEntries(SCALARS.map((name) => [name, graph.input(name, [])])) as Record<(typeof SCALARS)[number], Value>;
  for (const [at, rank] of ranks.entries()) {
    const shape = Array.from({ length: rank }, (_, i) => `d${at}_${i}`);
    const [p, m, v, gradient] = ["p", "m", "v", "g"].map((name) => graph.input(name + at, shape)) as [Value, Value, Value, Value];
    const g = mul(gradient, scalar.clip);
    const first = add(mul(m, scalar.beta1), mul(g, scalar.oneMinusBeta1));
    const second = add(mul(v, scalar.beta2), mul(mul(g, g), scalar.oneMinusBeta2));
    const update = div(first, add(div(sqrt(second), scalar.correction), scalar.epsilon));
    graph.output(`p${at}_next`, sub(sub(p, mul(p, scalar.shrink)), mul(update, scalar.scaledRate)));
    graph.output(`m${at}_next`, first);
    graph.output(`v${at}_next`, second);
  }
  return graph;
}
