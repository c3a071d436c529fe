import type { Engine, Logprobs, LossMetrics, ModelHandle } from "../../engine/port.ts";
import { LINEAR_LOSS, linearRows, policyObjectiveSteps, policyRows, type RlBatch } from "../../learner/index.ts";
import { runStepsInSlices } from "../../util/steps.ts";

/** What the gradient is computed with. */
export interface GradientScope {
  readonly engine: Engine;
  readonly handle: ModelHandle;
  readonly signal: AbortSignal;
}

/** What {@link computeGradient} leaves besides the gradient in the engine. */
export interface RlGradient {
  /** Before the step, per row. */
  readonly logprobs: readonly Logprobs[];
  readonly metrics: LossMetrics;
}

/**
 * Adds the gradient of the batch's loss to the engine's. A loss that the engine has is one call. Any other takes two: a forward
 * pass, from which the learner computes the loss and its derivative by every log-probability, and the plain policy gradient with
 * those derivatives for advantages.
 */
export async function computeGradient({ engine, handle, signal }: GradientScope, batch: RlBatch): Promise<RlGradient> {
  const { rows, loss, objective } = batch;
  if (objective === null) return engine.forwardBackward(handle, rows, loss, { signal });
  const logprobs = await engine.forward(handle, rows, { signal });
  const gradient = await runStepsInSlices(policyObjectiveSteps(policyRows(rows, logprobs), objective), { signal });
  const { metrics } = await engine.forwardBackward(handle, linearRows(rows, gradient.derivatives), LINEAR_LOSS, { signal });
  return { logprobs, metrics: { ...metrics, loss: gradient.loss } };
}
