/** Learning-rate schedules over the steps of a job. */

/** Learning-rate schedule parameters. */
export interface RateSchedule {
  /** Shape of the schedule after the warm-up. */
  readonly kind: "constant" | "linear" | "cosine";
  /** Maximum learning rate. */
  readonly peak: number;
  /** Learning rate from which the warm-up rises, and at which `linear` and `cosine` end. */
  readonly minimum: number;
  /** Number of warm-up steps. */
  readonly warmupSteps: number;
}

/**
 * Returns the learning rate of a step. With `N` steps, `W` of them warm-up, and step `i` from 0:
 *
 * ```text
 * i < W:   min + (peak − min)·(i + 1)/W
 * i ≥ W:   p = (i − W)/(N − W − 1), or 0 if N − W ≤ 1
 *          peak | peak − (peak − min)·p | min + (peak − min)·(1 + cos πp)/2        constant | linear | cosine
 * ```
 *
 * The last step of `linear` and `cosine` has the rate `min`: if `min` is 0, the last step changes no weight.
 *
 * @param step - Index of the step, from 0.
 * @param steps - Number of steps of the whole job.
 * @source cosine: SGDR, arXiv:1608.03983; linear warm-up: Goyal et al., arXiv:1706.02677.
 */
export function learningRate(step: number, steps: number, { kind, peak, minimum, warmupSteps }: RateSchedule): number {
  const range = peak - minimum;
  const stepsAfterWarmup = steps - warmupSteps;
  if (step < warmupSteps) return minimum + (range * (step + 1)) / warmupSteps;
  const progress = stepsAfterWarmup <= 1 ? 0 : (step - warmupSteps) / (stepsAfterWarmup - 1);
  switch (kind) {
    case "constant":
      return peak;
    case "linear":
      return peak - range * progress;
    case "cosine":
      return minimum + (range / 2) * (1 + Math.cos(Math.PI * progress));
  }
}
