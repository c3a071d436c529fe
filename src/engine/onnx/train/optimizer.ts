import type { AdamParams } from "../../port.ts";
import { BLOCK, type Layout } from "../model/parameters.ts";
import { loadRuntime, Program } from "../runtime.ts";
import { AdamKernel } from "./adam-kernel.ts";
import { normGraph } from "./optimizer-graph.ts";

/** Vectors of one trainable model, all of the layout's length. */
export interface OptimizerState {
  readonly parameters: Float32Array;
  readonly gradients: Float32Array;
  readonly first: Float32Array;
  readonly second: Float32Array;
  /** Steps taken. */
  step: number;
}

/** Adam's defaults; beta2 is that of the reference trainer, not PyTorch's 0.999: RL runs are short. */
export const ADAM_DEFAULTS = { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 0 } as const;

/** Clipping by the global norm and AdamW, shared by all models of a trainer. */
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
   * One step in place: clips by the global norm, updates parameters and moments, zeroes the gradients.
   *
   * @returns The norm before clipping. When it is not finite nothing is changed but the gradients, which are dropped.
   */
  async step(state: OptimizerState, layout: Layout, adam: AdamParams): Promise<number> {
    const { Tensor } = await loadRuntime();
    const { learningRate } = adam;
    const beta1 = adam.beta1 ?? ADAM_DEFAULTS.beta1;
    const beta2 = adam.beta2 ?? ADAM_DEFAULTS.beta2;
    const epsilon = adam.epsilon ?? ADAM_DEFAULTS.epsilon;
    const weightDecay = adam.weightDecay ?? ADAM_DEFAULTS.weightDecay;
    const maxGradNorm = adam.maxGradNorm ?? ADAM_DEFAULTS.maxGradNorm;

    const { norm } = await this.#norm.run({ gradient: new Tensor("float32", state.gradients, [layout.length / BLOCK, BLOCK]) }, ["norm"]);
    const gradNorm = (norm!.data as Float32Array)[0]!;
    if (Number.isFinite(gradNorm)) {
      const t = state.step + 1;
      const scalars = {
        // The 1e-6 is torch.nn.utils.clip_grad_norm_'s.
        clip: maxGradNorm > 0 ? Math.min(1, maxGradNorm / (gradNorm + 1e-6)) : 1,
        beta1,
        rest1: 1 - beta1,
        beta2,
        rest2: 1 - beta2,
        scaledRate: learningRate / (1 - beta1 ** t),
        correction: Math.sqrt(1 - beta2 ** t),
        epsilon,
      };
      const vectors = { p: state.parameters, m: state.first, v: state.second, g: state.gradients };
      this.#adam.update(vectors, 0, layout.decayed, { ...scalars, shrink: learningRate * weightDecay });
      this.#adam.update(vectors, layout.decayed, layout.length, { ...scalars, shrink: 0 });
      state.step = t;
    }
    state.gradients.fill(0);
    return gradNorm;
  }
}
