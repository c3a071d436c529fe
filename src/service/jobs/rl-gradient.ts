/** Gradient of an RL batch, for losses that the engine implements and for losses that only the learner implements. */
import type { Engine, Logprobs, LossMetrics, ModelHandle, Row } from "../../engine/port.ts";
import { linearLoss, linearRows, policyObjectiveSteps, policyRows, type RlBatch } from "../../learner/index.ts";
import { runStepsInSlices } from "../../base/util/steps.ts";

/** Engine, model and reference policy for a gradient computation. */
export interface GradientScope {
  readonly engine: Engine;
  readonly handle: ModelHandle;
  readonly signal: AbortSignal;
  /** Returns the log-probabilities of rows under the reference policy of a KL penalty. */
  readonly reference: (rows: readonly Row[]) => Promise<Logprobs[]>;
}

/** Result of {@link computeGradient}. The gradient itself stays in the engine. */
export interface RlGradient {
  /** Log-probabilities before the step, per row. */
  readonly logprobs: readonly Logprobs[];
  readonly metrics: LossMetrics;
  /** Mean KL estimate to the reference policy, in nats; null without a KL penalty. */
  readonly kl: number | null;
}

/**
 * Accumulates the gradient of the batch's loss in the engine. A loss that the engine implements takes one call. Any other loss takes two: a
 * forward pass, from which the learner computes the loss and its derivative with respect to every log-probability, then a backward pass
 * with a linear loss that uses these derivatives as advantages. The backward pass alone adds the entropy bonus.
 */
export async function computeGradient({ engine, handle, signal, reference }: GradientScope, batch: RlBatch): Promise<RlGradient> {
  const { rows, loss, objective } = batch;
  if (objective === null) return { ...(await engine.forwardBackward(handle, rows, loss, { signal })), kl: null };
  const logprobs = await engine.forward(handle, rows, { signal });
  const referenceLogprobs = objective.kl === null ? null : await reference(rows);
  const gradient = await runStepsInSlices(policyObjectiveSteps(policyRows(rows, logprobs, referenceLogprobs), objective), { signal });
  const backwardLoss = linearLoss(objective);
  const { metrics } = await engine.forwardBackward(handle, linearRows(rows, gradient.derivatives), backwardLoss, { signal });
  // The reported loss is the learner's loss minus the entropy bonus, which only the backward pass computes.
  const bonus = (backwardLoss.entropyCoefficient ?? 0) * (metrics.weightedEntropy ?? 0);
  return { logprobs, metrics: { ...metrics, loss: gradient.loss - bonus }, kl: gradient.kl };
}
