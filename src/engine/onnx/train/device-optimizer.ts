/** Global-norm clipping and AdamW on a device, where parameters, moments and gradients stay. */
import type { AdamParams } from "../../../training-rows.ts";
import { add, div, Graph, mul, reduceSum, reshape, sqrt, sub, type Value } from "../graph/index.ts";
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
    for (const parameter of layout.parameters) await this.#update(vectors, parameter, parameter.offset < layout.decayed ? decayed : rest);
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
    const program = await this.#programs.get(JSON.stringify(shapes), () => {
      const graph = new Graph();
      const sums = shapes.map(([name, shape]) => sumOfSquares(graph.input(name, shape)));
      graph.output("gradient_norm", sqrt(sums.reduce((a, b) => add(a, b))));
      return Program.compile(graph, "gradient-norm", { threads: 1, device: this.#memory.device });
    });
    const { gradient_norm: norm } = await program.run(gradients.feeds(), ["gradient_norm"]);
    return (norm!.data as Float32Array)[0]!;
  }

  async #update({ parameters, gradients, first, second }: DeviceVectors, { name, shape }: Parameter, scalars: AdamScalars): Promise<void> {
    const { Tensor } = await loadRuntime();
    const program = await this.#programs.get(`rank ${shape.length}`, () =>
      Program.compile(updateGraph(shape.length), "adamw", { threads: 1, device: this.#memory.device, resident: () => true }),
    );
    const feeds: Tensors = {
      p: parameters.get(name).tensor,
      m: first.get(name).tensor,
      v: second.get(name).tensor,
      g: gradients.get(name).tensor,
      ...Object.fromEntries(SCALARS.map((each) => [each, new Tensor("float32", Float32Array.of(scalars[each]), [])])),
    };
    const results = await program.run(feeds, ["p_next", "m_next", "v_next"]);
    parameters.set(name, this.#memory.adopt(results["p_next"]!));
    first.set(name, this.#memory.adopt(results["m_next"]!));
    second.set(name, this.#memory.adopt(results["v_next"]!));
  }
}

/** Returns `Σ x²` as a scalar, summed axis by axis from the last: one running sum over millions of squares loses three digits. */
function sumOfSquares(x: Value): Value {
  let sum = mul(x, x);
  for (let axis = x.shape.length - 1; axis >= 0; axis--) sum = reduceSum(sum, [axis]);
  return reshape(sum, []);
}

/** Builds the update of one tensor: inputs `p`, `m`, `v`, `g` and the scalars, outputs `p_next`, `m_next`, `v_next`. */
function updateGraph(rank: number): Graph {
  const graph = new Graph();
  const shape = Array.from({ length: rank }, (_, i) => `d${i}`);
  const [p, m, v, gradient] = ["p", "m", "v", "g"].map((name) => graph.input(name, shape)) as [Value, Value, Value, Value];
  const scalar = Object.fromEntries(SCALARS.map((name) => [name, graph.input(name, [])])) as Record<(typeof SCALARS)[number], Value>;
  const g = mul(gradient, scalar.clip);
  const first = add(mul(m, scalar.beta1), mul(g, scalar.oneMinusBeta1));
  const second = add(mul(v, scalar.beta2), mul(mul(g, g), scalar.oneMinusBeta2));
  const update = div(first, add(div(sqrt(second), scalar.correction), scalar.epsilon));
  graph.output("p_next", sub(sub(p, mul(p, scalar.shrink)), mul(update, scalar.scaledRate)));
  graph.output("m_next", first);
  graph.output("v_next", second);
  return graph;
}
