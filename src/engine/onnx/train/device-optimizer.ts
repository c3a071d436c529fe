/** Global-norm clipping and AdamW on a device (GPU), where parameters, moments and gradients stay. */
import type { AdamParams } from "../../../base/training-rows.ts";
import { add, concat, div, expandTo, Graph, join, mul, reduceSum, reshape, split, sqrt, sub, sumAll, type Value } from "../graph/index.ts";
import type { Layout, Parameter } from "../model/parameters.ts";
import type { DeviceMemory } from "../runtime/device-memory.ts";
import type { DeviceVector, NamedPart } from "../runtime/device-vector.ts";
import { ProgramCache } from "../runtime/program-cache.ts";
import { loadRuntime, Program, tableOf, type Tensor, withShape } from "../runtime/program.ts";
import { type AdamScalars, SCALARS } from "./adam-kernel.ts";
import { mayOverflow, scalarsOf } from "./optimizer.ts";
import { requireFiniteGradient, requireFiniteWeights } from "./require-finite.ts";
import { first, itemAt, zip } from "../../../base/util/values.ts";

/** Vectors of a model in a device's memory. Moments have one flat tensor per group of {@link groupsOf}, the others one per parameter. */
export interface DeviceVectors {
  readonly parameters: DeviceVector;
  readonly gradients: DeviceVector;
  readonly first: DeviceVector;
  readonly second: DeviceVector;
}

/** Consecutive parameters that one run updates as one flat vector. */
export interface ParameterGroup extends NamedPart {
  readonly parameters: readonly Parameter[];
  readonly isDecayed: boolean;
}

/** Max bytes of a group of several parameters: their concatenation, old values and new values are in memory during a run. */
const MAX_GROUP_BYTES = 2 ** 26;
/** Max compiled graphs. The groups of a model have at most some ten different lists of sizes. */
const MAX_PROGRAMS = 32;

/** Optimizer of all models of a device; the formula is the one of {@link AdamScalars}. */
export class DeviceOptimizer {
  readonly #memory: DeviceMemory;
  readonly #programs = new ProgramCache(MAX_PROGRAMS);

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
    const groups = groupsOf(layout);
    const gradNorm = await this.#norm(vectors.gradients, groups);
    if (!Number.isFinite(gradNorm)) requireFiniteGradient(layout, await vectors.gradients.download(layout.length), gradNorm);
    const { decayed, rest } = scalarsOf(adam, gradNorm, step);
    const before = mayOverflow(decayed)
      ? { parameters: vectors.parameters.clone(), first: vectors.first.clone(), second: vectors.second.clone() }
      : null;
    for (const group of groups) await this.#update(vectors, group, group.isDecayed ? decayed : rest);
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

  /** Returns the global norm of the gradients. */
  async #norm(gradients: DeviceVector, groups: readonly ParameterGroup[]): Promise<number> {
    // A single tensor is read in its own shape, without a copy.
    const shapes = groups.map((group) => (group.parameters.length === 1 ? [first(group.parameters).shape] : flatShapes(group)));
    const program = await this.#programs.get(`norm ${JSON.stringify(shapes)}`, () =>
      Program.compile(normGraph(shapes), "gradient-norm", { threads: 1, device: this.#memory.device }),
    );
    const feeds = groups.flatMap((group, index) => feedsOf(gradients, group, itemAt(shapes, index), `g${index}_`));
    const { gradient_norm: norm } = await program.run(tableOf(feeds), ["gradient_norm"]);
    return (norm!.data as Float32Array)[0]!;
  }

  /** Updates parameters and moments of a group in one run. */
  async #update(vectors: DeviceVectors, group: ParameterGroup, scalars: AdamScalars): Promise<void> {
    const { Tensor } = await loadRuntime();
    const shapes = flatShapes(group);
    const sizes = group.parameters.map(({ size }) => size);
    const program = await this.#programs.get(`update ${sizes.join(",")}`, () =>
      Program.compile(updateGraph(sizes), "adamw", {
        threads: 1,
        device: this.#memory.device,
        resident: () => true,
        hosted: (input) => SCALARS.some((scalar) => scalar === input),
      }),
    );
    const feeds = tableOf<Tensor>([
      ...SCALARS.map((each) => [each, new Tensor("float32", Float32Array.of(scalars[each]), [])] as const),
      ...feedsOf(vectors.parameters, group, shapes, "p"),
      ...feedsOf(vectors.gradients, group, shapes, "g"),
      ["m", vectors.first.get(group.name).tensor],
      ["v", vectors.second.get(group.name).tensor],
    ]);
    const results = await program.run(feeds, [...sizes.map((_, index) => `p${index}_next`), "m_next", "v_next"]);
    group.parameters.forEach(({ name, shape }, index) =>
      vectors.parameters.set(name, this.#memory.adopt(results[`p${index}_next`]!, shape)),
    );
    vectors.first.set(group.name, this.#memory.adopt(results["m_next"]!));
    vectors.second.set(group.name, this.#memory.adopt(results["v_next"]!));
  }
}

/**
 * Cuts the parameters of a layout into groups, in order: each has weight decay or none, and at most {@link MAX_GROUP_BYTES} or a single
 * parameter.
 */
export function groupsOf({ parameters, decayed }: Layout): ParameterGroup[] {
  const groups: { parameters: Parameter[]; isDecayed: boolean; size: number }[] = [];
  for (const parameter of parameters) {
    const isDecayed = parameter.offset < decayed;
    const last = groups.at(-1);
    if (last?.isDecayed === isDecayed && 4 * (last.size + parameter.size) <= MAX_GROUP_BYTES) {
      last.parameters.push(parameter);
      last.size += parameter.size;
    } else groups.push({ parameters: [parameter], isDecayed, size: parameter.size });
  }
  return groups.map((group) => {
    const { name, offset } = first(group.parameters);
    return { ...group, name, offset, shape: [group.size] };
  });
}

/** Returns the shapes of a group's parameters as vectors. */
function flatShapes({ parameters }: ParameterGroup): (readonly number[])[] {
  return parameters.map(({ size }) => [size]);
}

/** Returns the tensors of a group in other shapes, by the names of graph inputs: `prefix` and an index. */
function feedsOf(vector: DeviceVector, { parameters }: ParameterGroup, shapes: readonly (readonly number[])[], prefix: string) {
  return zip(parameters, shapes).map(
    ([{ name }, shape], index) => [`${prefix}${index}`, withShape(vector.get(name).tensor, shape)] as const,
  );
}

/** Number of terms that are added up in one piece. */
const PIECE = 512;

/**
 * Builds the graph of the norm `√Σ x²` of groups of tensors. Input `g<group>_<index>` has the given shape, flat in a group of several.
 * Sums the squares of each group in pieces, then these sums in pieces, then the rest: one running sum over millions of squares loses three
 * digits.
 */
function normGraph(groups: readonly (readonly (readonly number[])[])[]): Graph {
  const graph = new Graph();
  const sums = groups.map((shapes, group) => {
    const tensors = shapes.map((shape, index) => graph.input(`g${group}_${index}`, shape));
    const x = tensors.length === 1 ? first(tensors) : inPieces(tensors);
    const sum = reduceSum(mul(x, x), [x.shape.length - 1]);
    return reshape(sum, [sum.shape.reduce<number>((size, dim) => size * Number(dim), 1)]);
  });
  graph.output("gradient_norm", sqrt(sumAll(reduceSum(inPieces(sums), [1]))));
  return graph;
}

/** Concatenates flat vectors and zeros as `[pieces, PIECE]`. */
function inPieces(vectors: readonly Value[]): Value {
  const { graph } = first(vectors);
  const size = vectors.reduce((sum, { shape }) => sum + Number(shape[0]), 0);
  const pieces = Math.ceil(size / PIECE);
  const padding = pieces * PIECE - size;
  const padded = padding === 0 ? vectors : [...vectors, expandTo(graph.scalar(0), [padding])];
  return reshape(concat(padded, 0, pieces * PIECE), [pieces, PIECE]);
}

/**
 * Builds the update of flat tensors of the given sizes as one vector: inputs `p0`, `g0`, `p1`, …, the joined moments `m` and `v`, and the
 * scalars; outputs `p0_next`, `p1_next`, …, `m_next` and `v_next`.
 */
function updateGraph(sizes: readonly number[]): Graph {
  const graph = new Graph();
  const total = sizes.reduce((a, b) => a + b, 0);
  const joined = (name: string) => {
    const tensors = sizes.map((size, index) => graph.input(name + index, [size]));
    return join(tensors, 0, total);
  };
  const scalar = Object.fromEntries(SCALARS.map((name) => [name, graph.input(name, [])])) as Record<(typeof SCALARS)[number], Value>;
  const [p, m, v] = [joined("p"), graph.input("m", [total]), graph.input("v", [total])];
  const g = mul(joined("g"), scalar.clip);
  const first = add(mul(m, scalar.beta1), mul(g, scalar.oneMinusBeta1));
  const second = add(mul(v, scalar.beta2), mul(mul(g, g), scalar.oneMinusBeta2));
  const update = div(first, add(div(sqrt(second), scalar.correction), scalar.epsilon));
  const next = sub(sub(p, mul(p, scalar.shrink)), mul(update, scalar.scaledRate));
  const parts = sizes.length === 1 ? [next] : split(next, 0, sizes);
  parts.forEach((part, index) => graph.output(`p${index}_next`, part));
  graph.output("m_next", first);
  graph.output("v_next", second);
  return graph;
}
