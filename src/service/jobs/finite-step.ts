/** Checks that training steps result in finite numbers and in a usable model. */
import type { Engine, Logprobs, LossMetrics, ModelHandle, Row } from "../../engine/port.ts";
import { NonFiniteError, WhetstoneError } from "../../base/errors.ts";
import { first } from "../../base/util/values.ts";

/** End of every message of these checks. */
const REMEDY =
  "The job committed nothing: the model stays at its last checkpoint. Lower the learning rate, set `max_grad_norm`, or check rewards, weights and log-probabilities of the data";

/** Max tokens of the sequence with which {@link requireUsableModel} checks a model. */
const PROBE_TOKENS = 64;

/**
 * Runs a part of a job that computes with the model's weights, and adds context to its non-finite errors.
 *
 * @param part - Name of the optimizer step or measurement, for the message.
 * @throws NonFiniteError `E_NON_FINITE` naming the part, the engine's details and a remedy, if the engine throws one.
 */
export async function requireFiniteStep<T>(part: string, work: () => Promise<T>): Promise<T> {
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

/** Context of {@link requireUsableModel}. */
export interface ProbeContext {
  readonly engine: Engine;
  readonly handle: ModelHandle;
  readonly vocabularySize: number;
  readonly signal: AbortSignal;
}

/** Max relative difference to the uniform distribution that rounding explains. */
const UNIFORM_TOLERANCE = 1e-6;

/**
 * Checks the weights after the last optimizer step of a job: finite weights can be so large that the model has no finite log-probabilities,
 * or, because its normalization overflows, the uniform distribution for every prompt. Every earlier step is checked by the pass that
 * follows it.
 *
 * @param rows - Rows of the step. Only the first {@link PROBE_TOKENS} tokens of the first row are computed; no check without rows.
 * @param before - Log-probabilities of the rows before the update. A model that was uniform already, such as one without a trained head,
 *   may stay so.
 * @throws NonFiniteError `E_NON_FINITE` for log-probabilities that are not finite, or uniform only since the update.
 */
export async function requireUsableModel(
  { engine, handle, vocabularySize, signal }: ProbeContext,
  rows: readonly Row[],
  before: readonly Logprobs[],
): Promise<void> {
  const [row] = rows;
  if (row === undefined) return;
  const tokens = row.tokens.slice(0, PROBE_TOKENS);
  // Log-probabilities are computed where the weight is not 0. The first token has none.
  const probe = { tokens, weights: new Float32Array(tokens.length).fill(1, 1) };
  const unusableError = (problem: string, cause?: unknown) =>
    new NonFiniteError(`The update makes the model unusable. ${problem}`, { cause });
  const results = await engine.forward(handle, [probe], { signal }).catch((error: unknown) => {
    throw WhetstoneError.isInstance(error) && error.code === "E_NON_FINITE" ? unusableError(error.message, error) : error;
  });
  const uniformLogprob = -Math.log(vocabularySize);
  const isUniform = (logprobs: Logprobs) =>
    logprobs.every((logprob) => Math.abs(logprob - uniformLogprob) <= UNIFORM_TOLERANCE * -uniformLogprob);
  const logprobsAfter = first(results).subarray(1);
  const trainedBefore = first(before).filter((_, t) => row.weights[t] !== 0);
  if (isUniform(logprobsAfter) && !isUniform(trainedBefore))
    throw unusableError(
      `Expected log-probabilities that depend on the prompt, got the uniform distribution for all ${logprobsAfter.length} tokens`,
    );
}
