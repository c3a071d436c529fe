/** Global-norm clipping and AdamW on the processor. The device's counterpart is device-optimizer.ts. */
import { type AdamParams, completeAdam } from "../../../base/training-rows.ts";
import { Graph, mul, reduceSum } from "../graph/index.ts";
import { BLOCK, type Layout } from "../model/parameters.ts";
import { loadRuntime, Program } from "../runtime/program.ts";
import { AdamKernel, type AdamScalars } from "./adam-kernel.ts";
import { requireFiniteGradient, requireFiniteWeights } from "./require-finite.ts";

/** Vectors of one trainable model, each of the layout's length. */
export interface OptimizerState {
  readonly parameters: Float32Array;
  readonly gradients: Float32Array;
  /** First moments: moving averages of the gradients. */
  readonly first: Float32Array;
  /** Second moments: moving averages of the squared gradients. */
  readonly second: Float32Array;
  /** Steps taken. */
  step: number;
}

/** Max blocks of squares in memory at once: 64 MiB. */
const MAX_BLOCKS = 16_384;

/** Global-norm clipping and AdamW, shared by all models of a trainer. */
export class Optimizer {
  readonly #squares: Program;
  readonly #adam = new AdamKernel();

  private constructor(squares: Program) {
    this.#squares = squares;
  }

  /** Compiles the graph of the gradient norm. @param threads - Threads inside one op. */
  static async create(threads: number): Promise<Optimizer> {
    return new Optimizer(await Program.compile(squaresGraph(), "gradient-squares", { threads, memoryPattern: false }));
  }

  /**
   * Takes one step in place: clips by the global norm, updates parameters and moments, zeroes the gradients.
   *
   * @returns The global gradient norm before clipping.
   * @throws NonFiniteError `E_NON_FINITE` naming the tensor if the norm or an updated weight is not finite; then parameters and moments are
   *   unchanged.
   */
  async step(state: OptimizerState, layout: Layout, adam: AdamParams): Promise<number> {
    try {
      const gradNorm = await this.#norm(state.gradients);
      requireFiniteGradient(layout, state.gradients, gradNorm);
      const t = state.step + 1;
      const { decayed, rest } = scalarsOf(adam, gradNorm, t);
      const update = (vectors: Vectors): void => {
        this.#adam.update(vectors, 0, layout.decayed, decayed);
        this.#adam.update(vectors, layout.decayed, layout.length, rest);
      };
      const vectors: Vectors = { p: state.parameters, m: state.first, v: state.second, g: state.gradients };
      if (mayOverflow(decayed)) {
        const copies = { ...vectors, p: vectors.p.slice(), m: vectors.m.slice(), v: vectors.v.slice() };
        update(copies);
        requireFiniteWeights({ layout, parameters: copies.p });
        for (const name of ["p", "m", "v"] as const) vectors[name].set(copies[name]);
      } else update(vectors);
      state.step = t;
      return gradNorm;
    } finally {
      state.gradients.fill(0);
    }
  }

  /**
   * Computes `√Σ g²`. Squares are summed in blocks in float32, and the blocks in float64: a running float32 sum over millions of terms
   * loses three digits.
   */
  async #norm(gradients: Float32Array): Promise<number> {
    const { Tensor } = await loadRuntime();
    const blocks = gradients.length / BLOCK;
    const sums = new Float32Array(blocks);
    for (let first = 0; first < blocks; first += MAX_BLOCKS) {
      const end = Math.min(first + MAX_BLOCKS, blocks);
      const gradient = new Tensor("float32", gradients.subarray(first * BLOCK, end * BLOCK), [end - first, BLOCK]);
      await this.#squares.run({ gradient }, { sums: new Tensor("float32", sums.subarray(first, end), [end - first, 1]) });
    }
    return Math.sqrt(sums.reduce((total, sum) => total + sum, 0));
  }
}

type Vectors = Parameters<AdamKernel["update"]>[0];

/** Computes the kernel's scalars of step `t`, with weight decay and without. */
export function scalarsOf(adam: AdamParams, gradNorm: number, t: number): { decayed: AdamScalars; rest: AdamScalars } {
  const { learningRate, beta1, beta2, epsilon, weightDecay, maxGradNorm } = completeAdam(adam);
  const rest = {
    // The 1e-6 comes from torch.nn.utils.clip_grad_norm_.
    clip: maxGradNorm > 0 ? Math.min(1, maxGradNorm / (gradNorm + 1e-6)) : 1,
    beta1,
    oneMinusBeta1: 1 - beta1,
    beta2,
    oneMinusBeta2: 1 - beta2,
    shrink: 0,
    scaledRate: learningRate / (1 - beta1 ** t),
    correction: Math.sqrt(1 - beta2 ** t),
    epsilon,
  };
  return { decayed: { ...rest, shrink: learningRate * weightDecay }, rest };
}

/** Max magnitude of a first moment: a mean of gradients, whose squares have a finite float32 sum. Rounded up from `√3.4e38`. */
const MAX_MOMENT = 2e19;

/** Max update that leaves a finite float32 weight finite: less than half a unit in the last place of the largest float32, 2^103. */
const HARMLESS_UPDATE = 1e30;

/**
 * Whether an update can take a finite weight to infinity or NaN. With usual settings it cannot, by the bound `|rate · m / (√v / correction
 * + ε)| ≤ rate · |m| / ε`, and the weights need no check after the step.
 */
export function mayOverflow({ scaledRate, epsilon, correction, shrink }: AdamScalars): boolean {
  const isBounded = (scaledRate * MAX_MOMENT) / Math.fround(epsilon) < HARMLESS_UPDATE;
  return !(isBounded && shrink <= 1 && Math.fround(correction) > 0);
}

/** Builds the graph of the sums of squares. Input `gradient` `[blocks, BLOCK]`; output `sums` `[blocks, 1]`. */
function squaresGraph(): Graph {
  const graph = new Graph();
  const gradient = graph.input("gradient", ["blocks", BLOCK]);
  graph.output("sums", reduceSum(mul(gradient, gradient), [1]));
  return graph;
}
