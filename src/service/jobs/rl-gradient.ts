import type { Engine, Logprobs, LossMetrics, ModelHandle, Row } from "../../engine/port.ts";
import { LINEAR_LOSS, linearRows, policyObjectiveSteps, policyRows, type RlBatch } from "../../learner/index.ts";
import { runStepsInSlices } from "../../util/steps.ts";

/** What the gradient is computed with. */
export interface GradientScope {
  readonly engine: Engine;
  readonly handle: ModelHandle;
  readonly signal: AbortSignal;
  /** Log-probabilities of rows under the policy that a KL penalty measures from. */
  readonly reference: (rows: readonly Row[]) => Promise<Logprobs[]>;
}

/** What {@link computeGradient} leaves besides the gradient in the engine. */
export interface RlGradient {
  /** Before the step, per row. */
  readonly logprobs: readonly Logprobs[];
  readonly metrics: LossMetrics;
  /** Mean distance from the reference policy, in nats; null without a KL penalty. */
  readonly kl: number | null;
}

/**
 * Adds the gradient of the batch's loss to the engine's. A loss that the engine has is one call. Any other takes two: a forward
 * pass, from which the learner computes the loss and its derivative by every log-probability, and the plain policy gradient with
 * those derivatives for advantages.
 */
export async function computeGradient({ engine, handle, signal, reference }: GradientScope, batch: RlBatch): Promise<RlGradient> {
  const { rows, loss, objective } = batch;
  if (objective === null) return { ...(await engine.forwardBackward(handle, rows, loss, { signal })), kl: null };
  const logprobs = await engine.forward(handle, rows, { signal });
  const referenceLogprobs = objective.kl === null ? null : await reference(rows);
  const gradient = await runStepsInSlices(policyObjectiveSteps(policyRows(rows, logprobs, referenceLogprobs), objective), { signal });
  const { metrics } = await engine.forwardBackward(handle, linearRows(rows, gradient.derivatives), LINEAR_LOSS, { signal });
  return { logprobs, metrics: { ...metrics, loss: gradient.loss }, kl: gradient.kl };
}
