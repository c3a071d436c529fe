import type { AdamParams } from "../../port.ts";
import { BLOCK, type Layout } from "../model/parameters.ts";
import { loadRuntime, Program } from "../runtime.ts";
import { AdamKernel, type AdamScalars } from "./adam-kernel.ts";
import { normGraph } from "./optimizer-graph.ts";
import { requireFiniteGradient, requireFiniteWeights } from "./require-finite.ts";

/** Vectors of one trainable model, each of the layout's length. */
export interface OptimizerState {
  readonly parameters: Float32Array;
  readonly gradients: Float32Array;
  readonly first: Float32Array;
  readonly second: Float32Array;
  /** Steps taken. */
  step: number;
}

/** Default Adam parameters. `beta2` follows the reference trainer instead of PyTorch's 0.999, because RL runs are short. */
export const ADAM_DEFAULTS = { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 0 } as const;

/** Global-norm clipping and AdamW, shared by all models of a trainer. */
export class Optimizer {
  readonly #norm: Program;
  readonly #adam = new AdamKernel();

  private constructor(norm: Program) {
    this.#norm = norm;
  }

  static async create(threads: number): Promise<Optimizer> {
    return new Optimizer(await Program.compile(normGraph(), "gradient-norm", { threads }));
  }

  /**
   * Takes one step in place: clips by the global norm, updates parameters and moments, zeroes the gradients.
   *
   * @returns The global gradient norm before clipping.
   * @throws NonFiniteError `E_NON_FINITE` naming the tensor if the norm or an updated weight is not finite; then parameters and moments are
   *   unchanged.
   */
  async step(state: OptimizerState, layout: Layout, adam: AdamParams): Promise<number> {
    const { Tensor } = await loadRuntime();
    try {
      const gradient = new Tensor("float32", state.gradients, [layout.length / BLOCK, BLOCK]);
      const { norm } = await this.#norm.run({ gradient }, ["norm"]);
      const gradNorm = (norm!.data as Float32Array)[0]!;
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
}

type Vectors = Parameters<AdamKernel["update"]>[0];

/** Computes the kernel's scalars of step `t`, with weight decay and without. */
function scalarsOf(adam: AdamParams, gradNorm: number, t: number): { decayed: AdamScalars; rest: AdamScalars } {
  const { learningRate } = adam;
  const beta1 = adam.beta1 ?? ADAM_DEFAULTS.beta1;
  const beta2 = adam.beta2 ?? ADAM_DEFAULTS.beta2;
  const epsilon = adam.epsilon ?? ADAM_DEFAULTS.epsilon;
  const weightDecay = adam.weightDecay ?? ADAM_DEFAULTS.weightDecay;
  const maxGradNorm = adam.maxGradNorm ?? ADAM_DEFAULTS.maxGradNorm;
  const rest = {
    // The 1e-6 comes from torch.nn.utils.clip_grad_norm_.
    clip: maxGradNorm > 0 ? Math.min(1, maxGradNorm / (gradNorm + 1e-6)) : 1,
    beta1,
    rest1: 1 - beta1,
    beta2,
    rest2: 1 - beta2,
    shrink: 0,
    scaledRate: learningRate / (1 - beta1 ** t),
    correction: Math.sqrt(1 - beta2 ** t),
    epsilon,
  };
  return { decayed: { ...rest, shrink: learningRate * weightDecay }, rest };
}

/** Max magnitude of a first moment: a mean of gradients with a finite sum of squares in float32. */
const MAX_MOMENT = 2e19;

/** Max update that leaves a finite float32 weight finite: less than half the last place of the largest float32, 2^103. */
const HARMLESS_UPDATE = 1e30;

/**
 * Whether an update can take a finite weight to infinity or NaN. With usual settings it cannot, by the bound `|rate · m / (√v / correction
 * + ε)| ≤ rate · |m| / ε`, and the weights need no check after the step.
 */
function mayOverflow({ scaledRate, epsilon, correction, shrink }: AdamScalars): boolean {
  const isBounded = (scaledRate * MAX_MOMENT) / Math.fround(epsilon) < HARMLESS_UPDATE;
  return !(isBounded && shrink <= 1 && Math.fround(correction) > 0);
}
