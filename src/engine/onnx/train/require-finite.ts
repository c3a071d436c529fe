/** Finiteness checks of a training step. Each error names the tensor or the token with a NaN or an infinity. */
import { itemAt } from "../../../base/util/values.ts";
import { NonFiniteError } from "../../../base/errors.ts";
import { firstNonFinite } from "../../../base/util/finite.ts";
import { requireFiniteLogprobs } from "../../check-results.ts";
import type { Logprobs } from "../../port.ts";
import { type Layout, tensorAt } from "../model/parameters.ts";

/** Trained weights of a model. */
interface Weights {
  readonly layout: Layout;
  readonly parameters: Float32Array;
}

/**
 * Checks the results of a forward pass.
 *
 * @param loss - Null if no loss was computed.
 * @throws NonFiniteError `E_NON_FINITE` naming row, token and the tensor with the largest weight.
 */
export function requireFinitePass({ layout, parameters }: Weights, logprobs: readonly Logprobs[], loss: number | null): void {
  requireFiniteLogprobs(logprobs, () => {
    const largest = indexOfLargest(parameters);
    return `; the largest trained weight is ${itemAt(parameters, largest).toPrecision(4)}, in tensor "${tensorAt(layout, largest)}"`;
  });
  if (loss !== null && !Number.isFinite(loss))
    throw new NonFiniteError(
      `Expected a finite loss, got ${loss} from finite log-probabilities: weights, advantages or ratios of the rows are too large`,
    );
}

/**
 * Checks accumulated gradients.
 *
 * @param norm - Global norm of `gradients`, in float32; also infinite if only a square overflows.
 * @throws NonFiniteError `E_NON_FINITE` naming the first tensor with a gradient that is not finite; if all are finite, the tensor with the
 *   largest gradient.
 */
export function requireFiniteGradient(layout: Layout, gradients: Float32Array, norm: number): void {
  if (Number.isFinite(norm)) return;
  const first = firstNonFinite(gradients);
  const index = first < 0 ? indexOfLargest(gradients) : first;
  throw new NonFiniteError(
    `Expected a finite gradient norm, got ${norm}; the gradient of tensor "${tensorAt(layout, index)}" has the element ${itemAt(gradients, index).toPrecision(4)}`,
  );
}

/**
 * Checks updated weights.
 *
 * @throws NonFiniteError `E_NON_FINITE` naming the first tensor with a weight that is not finite.
 */
export function requireFiniteWeights({ layout, parameters }: Weights): void {
  const index = firstNonFinite(parameters);
  if (index < 0) return;
  throw new NonFiniteError(
    `Expected finite weights after the update, got ${parameters[index]} in tensor "${tensorAt(layout, index)}": the learning rate or the weight decay is too large, or epsilon is too small`,
  );
}

function indexOfLargest(values: Float32Array): number {
  let largest = 0;
  for (let i = 1; i < values.length; i++) if (Math.abs(values[i]!) > Math.abs(values[largest]!)) largest = i;
  return largest;
}
