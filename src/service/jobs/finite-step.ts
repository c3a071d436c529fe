import type { LossMetrics } from "../../engine/port.ts";
import { NonFiniteError, WhetstoneError } from "../../errors.ts";

const REMEDY =
  "The job committed nothing: the model stays at its last checkpoint. Lower the learning rate, set `max_grad_norm`, or check rewards, weights and log-probabilities of the data";

/**
 * Runs a part of a job that computes with the model's weights, and adds context to its non-finite errors.
 *
 * @param part - Name of the optimizer step or measurement, for the message.
 * @throws NonFiniteError `E_NON_FINITE` naming the part, the engine's details and a remedy, if the engine throws one.
 */
export async function requireFinite<T>(part: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!WhetstoneError.isInstance(error) || error.code !== "E_NON_FINITE") throw error;
    throw new NonFiniteError(`${part}: ${error.message}. ${REMEDY}`, { cause: error });
  }
}

/**
 * Checks the loss of a pass before its gradient is applied.
 *
 * @throws NonFiniteError `E_NON_FINITE` for a loss that is NaN or infinite.
 */
export function requireFiniteLoss({ loss }: Pick<LossMetrics, "loss">): void {
  if (!Number.isFinite(loss)) throw new NonFiniteError(`Expected a finite loss, got ${loss}`);
}

/**
 * Checks the gradient norm of an optimizer step.
 *
 * @param gradNorm - Gradient norm; NaN if the engine does not report it.
 * @throws NonFiniteError `E_NON_FINITE` if the norm is infinite.
 */
export function requireFiniteNorm(gradNorm: number): void {
  if (Math.abs(gradNorm) === Infinity) throw new NonFiniteError(`Expected a finite gradient norm, got ${gradNorm}`);
}
