/**
 * Trainer of RL jobs: one optimizer step on the trajectory groups of a client. `reinforcement.ts` uses {@link trainBatch} for its steps,
 * too.
 */
import type { Logprobs, Row } from "../../engine/port.ts";
import { policyDiagnosticsSteps, trainingWarnings, WARNING_HISTORY, type RlBatch } from "../../learner/index.ts";
import { runStepsInSlices } from "../../base/util/steps.ts";
import type { RlJobConfig } from "../store/job-configs.ts";
import { recentRlSteps } from "../store/jobs.ts";
import { useGroups } from "../training-data/job-files.ts";
import { requireFiniteStep, requireFiniteLoss, requireFiniteNorm, requireUsableModel } from "./finite-step.ts";
import { warnOfMissingTokens } from "./missing-tokens.ts";
import { deviceMetrics, knownMetrics, paddingShare, threadMetrics } from "./metrics.ts";
import { computeGradient, type RlGradient } from "./rl-gradient.ts";
import { referenceLogprobs } from "./rl-reference.ts";
import type { JobScope } from "./run-job.ts";
import type { Trained } from "./states.ts";
import { tokenReport, writeTokenReport } from "./token-report.ts";

/** Trains one optimizer step on all rows of the job's groups. */
export async function runRlStep(scope: JobScope): Promise<Trained> {
  const { context, job, base, signal, emit } = scope;
  const { directory, store } = context;
  const config = JSON.parse(job.config) as RlJobConfig;
  const plan = { directory, jobId: job.id, config: config.experimental_config, base };
  const batch = await useGroups(context.files, job, () => context.data.rlBatch(plan, signal));
  const { warnings = [] } = config;
  // In this event, `num_sequences` is the number of optimizer steps of the job.
  await emit({ key: "start", type: "training_started", data: { num_sequences: 1, ...(warnings.length > 0 ? { warnings } : {}) } });
  const partsWithMissingBytes = { count: batch.trajectoriesWithMissingBytes, one: "trajectory", many: "trajectories" };
  await warnOfMissingTokens(scope, batch.missingBytes, partsWithMissingBytes);
  const { logprobs, metrics } = await trainBatch(scope, batch, `Step ${scope.model.next_step}`);
  const digests =
    config.experimental_config?.token_report === true
      ? await writeTokenReport(context, job.id, tokenReport(batch.sources, batch.rows, logprobs))
      : undefined;
  const stepWarnings = trainingWarnings(metrics, await recentRlSteps(store, job.model_id, WARNING_HISTORY));
  return {
    metrics,
    digests,
    events: [
      { key: "step:1", type: "gradient_step", data: { gradient_step: 1, ...metrics } },
      ...stepWarnings.map((warning) => ({ key: `warning:1:${warning.code}`, type: "warning" as const, data: { ...warning } })),
    ],
  };
}

/** Result of {@link trainBatch}. */
export interface TrainedBatch {
  /** Log-probabilities before the step, per row. */
  readonly logprobs: readonly Logprobs[];
  readonly metrics: Readonly<Record<string, number>>;
}

/**
 * Trains one optimizer step on a batch.
 *
 * @param step - Name of the step, for errors.
 * @throws NonFiniteError `E_NON_FINITE` if the step has no finite loss, norm or metrics, or makes the model unusable.
 */
export async function trainBatch(scope: JobScope, batch: RlBatch, step: string): Promise<TrainedBatch> {
  const { context, handle, base, checkpoint, signal } = scope;
  const { engine } = context;
  const startedMs = performance.now();
  const { logprobs, metrics: lossMetrics, kl, gradNorm } = await requireFiniteStep(step, () => optimize(scope, batch));
  const seconds = (performance.now() - startedMs) / 1000;
  await requireFiniteStep(step, () =>
    requireUsableModel({ engine, handle, vocabularySize: base.vocabularySize, signal }, batch.rows, logprobs),
  );
  const samplerDifference = logprobDifference(batch.rows, logprobs);
  const diagnostics = await runStepsInSlices(policyDiagnosticsSteps(batch, logprobs, { startStep: checkpoint.step }), { signal });
  const entropy = lossMetrics.tokens === 0 ? 0 : lossMetrics.entropy / lossMetrics.tokens;
  const numTokens = batch.rows.reduce((sum, row) => sum + row.tokens.length, 0);
  const metrics = await requireFiniteStep(step, async () =>
    knownMetrics({
      ...batch.metrics,
      ...diagnostics,
      "policy/entropy": entropy,
      "tokens/padding_share": paddingShare(lossMetrics),
      ...threadMetrics(lossMetrics),
      ...deviceMetrics(lossMetrics),
      loss: lossMetrics.loss,
      entropy,
      ...(kl === null ? {} : { kl_policy_ref: kl }),
      grad_norm: gradNorm,
      learning_rate: batch.adam.learningRate,
      num_tokens: numTokens,
      num_trainable_tokens: lossMetrics.tokens,
      num_sequences: batch.rows.length,
      logprob_difference_max: samplerDifference.max,
      logprob_difference_mean: samplerDifference.mean,
      tokens_per_second: numTokens / Math.max(seconds, 1e-9),
    }),
  );
  return { logprobs, metrics };
}

/** Computes the gradient of a batch and applies it. @throws NonFiniteError `E_NON_FINITE` for a loss or norm that is not finite. */
async function optimize(scope: JobScope, batch: RlBatch): Promise<RlGradient & { readonly gradNorm: number }> {
  const { context, handle, signal } = scope;
  const { engine } = context;
  const reference = (rows: readonly Row[]) => referenceLogprobs(scope, rows, batch.reference ?? { kind: "base" });
  const gradient = await computeGradient({ engine, handle, signal, reference }, batch);
  requireFiniteLoss(gradient.metrics);
  const { gradNorm } = await engine.optimStep(handle, batch.adam, { signal });
  requireFiniteNorm(gradNorm);
  return { ...gradient, gradNorm };
}

/**
 * Returns the max and mean absolute difference between the sampler's and the trainer's log-probabilities over the trained tokens. If both
 * use the same weights, only rounding remains; a larger difference indicates off-policy data or a defect.
 */
function logprobDifference(rows: readonly Row[], logprobs: readonly Logprobs[]): { readonly max: number; readonly mean: number } {
  let max = 0;
  let sum = 0;
  let count = 0;
  for (const [index, row] of rows.entries()) {
    const computed = logprobs[index];
    if (computed === undefined || row.logprobs === undefined) continue;
    for (let t = 0; t < row.tokens.length; t++) {
      const sampled = row.logprobs[t] ?? NaN;
      if (row.weights[t] === 0 || Number.isNaN(sampled)) continue;
      const difference = Math.abs((computed[t] ?? NaN) - sampled);
      max = Math.max(max, difference);
      sum += difference;
      count++;
    }
  }
  return { max, mean: count === 0 ? 0 : sum / count };
}
