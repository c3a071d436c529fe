/** How a learning rate goes over the steps of a job. */

/** What {@link learningRate} is the rate of a step of. */
export interface RateSchedule {
  /** How the rate goes on after its warm-up. */
  readonly kind: "constant" | "linear" | "cosine";
  /** The highest rate. */
  readonly peak: number;
  /** Where the warm-up begins, and where `linear` and `cosine` end. */
  readonly minimum: number;
  /** Steps in which the rate rises. */
  readonly warmupSteps: number;
}

/**
 * The rate of a step. With `N` steps, `W` of them warm-up, and step `i` from 0:
 *
 * ```text
 * i < W:   min + (peak − min)·(i + 1)/W
 * i ≥ W:   p = (i − W)/(N − W − 1), or 0 where N − W ≤ 1
 *          peak | peak − (peak − min)·p | min + (peak − min)·(1 + cos πp)/2        constant | linear | cosine
 * ```
 *
 * The last step of `linear` and `cosine` has the rate `min`: with 0 it moves no weight.
 *
 * @param step - Counted from 0.
 * @param steps - Of the whole job.
 * @source cosine: SGDR, arXiv:1608.03983; linear warm-up: Goyal et al., arXiv:1706.02677.
 */
export function learningRate(step: number, steps: number, { kind, peak, minimum, warmupSteps }: RateSchedule): number {
  const range = peak - minimum;
  const falling = steps - warmupSteps;
  if (step < warmupSteps) return minimum + (range * (step + 1)) / warmupSteps;
  const progress = falling <= 1 ? 0 : (step - warmupSteps) / (falling - 1);
  switch (kind) {
    case "constant":
      return peak;
    case "linear":
      return peak - range * progress;
    case "cosine":
      return minimum + (range / 2) * (1 + Math.cos(Math.PI * progress));
  }
}
