/** Trainer of SFT jobs. */
import { buildSftBatch, checkSftConfig, planSft, type SftPlan, type SftStep, type TokenSequence } from "../../learner/index.ts";
import { getArtifact } from "../store/artifacts.ts";
import type { Store } from "../store/tables.ts";
import { requireFiniteStep, requireFiniteLoss, requireFiniteNorm, requireUsableModel } from "./finite-step.ts";
import { warnOfMissingTokens } from "./missing-tokens.ts";
import { deviceMetrics, knownMetrics, paddingShare, threadMetrics } from "./metrics.ts";
import { fineTuningResults, type StepResults } from "./fine-tuning-results.ts";
import { JobPaused } from "./pause.ts";
import type { JobScope } from "./run-job.ts";
import { stepEvents, type StepEvent } from "./step-events.ts";
import type { Trained } from "./states.ts";
import { tokenAccuracy } from "./token-accuracy.ts";
import { sftSource, type SftData } from "../training-data/sft-data.ts";
import type { SftJobConfig } from "../store/job-configs.ts";

/** Training and validation data of an SFT job. */
interface SftWork {
  readonly data: SftData;
  readonly plan: SftPlan;
  /** Sequences of the validation examples; empty without validation. */
  readonly validation: readonly TokenSequence[];
  readonly validationExamples: number;
  /** Results for the fine-tuning interface; null for jobs of the job interface. */
  readonly results: StepResults | null;
}

/** Trains one optimizer step per batch, starting after the last committed step. */
export async function runSftSteps(scope: JobScope): Promise<Trained> {
  const { context, job, signal, emit } = scope;
  const work = await readWork(scope);
  const { data, plan, results } = work;
  const counts = {
    num_dropped_trajectories: data.droppedExamples,
    num_dropped_sequences: data.droppedSequences,
    num_dropped_tokens: data.droppedTokens,
  };
  const validationCounts = work.validationExamples === 0 ? {} : { num_validation_trajectories: work.validationExamples };
  await emit({ key: "start", type: "training_started", data: { num_sequences: plan.stepCount, ...counts, ...validationCounts } });
  await warnOfMissingTokens(scope, data.missingBytes, { count: data.examplesWithMissingBytes, one: "example", many: "examples" });
  let done = job.committed_steps;
  // The last start may have been interrupted between progress and checkpoint.
  await results?.afterCommit(done);
  for (const step of plan.steps(done)) {
    done++;
    signal.throwIfAborted();
    const number = done;
    const metrics = await requireFiniteStep(`Step ${number}`, () =>
      trainStep(scope, data, { step, number, isLast: number === plan.stepCount }),
    );
    const validation =
      step.validates && work.validation.length > 0
        ? await requireFiniteStep(`The validation after step ${number}`, () => measure(scope, work))
        : {};
    const reported = await requireFiniteStep(`Step ${number}`, async () => knownMetrics({ ...metrics, ...validation }));
    await emit({ key: `step:${number}`, type: "gradient_step", data: reported });
    // The final checkpoint commits the last step.
    if (done === plan.stepCount) break;
    const isPausing = scope.isPausing();
    if (done % context.limits.commitEverySteps === 0 || isPausing || results?.hasCheckpointAt(done) === true)
      await scope.commitProgress(done);
    await results?.afterCommit(done);
    if (isPausing) throw new JobPaused(done);
  }
  const metrics = { ...(await summarize(context.store, job.id)), ...counts, ...validationCounts };
  return { metrics, events: [], ...results?.atEnd(plan.stepCount) };
}

/** Reads the data of a job. Without a validation artifact, the examples that the plan holds out are the validation data. */
async function readWork(scope: JobScope): Promise<SftWork> {
  const { context, job, base, signal } = scope;
  const { store, data: reader, files } = context;
  const { artifact_id, validation_artifact_id, config, experimental_config, fine_tuning } = JSON.parse(job.config) as SftJobConfig;
  const { assistantTurns } = checkSftConfig(config, experimental_config);
  const read = async (id: string) => reader.sftData(await sftSource(await getArtifact(store, id), { base, files, assistantTurns }), signal);
  const data = await read(artifact_id);
  const plan = planSft(data.examples.length, config, experimental_config);
  const validation =
    validation_artifact_id === undefined
      ? plan.heldOut.map((index) => data.examples[index] ?? [])
      : (await read(validation_artifact_id)).examples;
  const results = fine_tuning === undefined ? null : fineTuningResults(scope, fine_tuning);
  return { data, plan, validation: validation.flat(), validationExamples: validation.length, results };
}

/** Data of an event `gradient_step`. */
interface SftStepMetrics {
  readonly gradient_step: number;
  readonly loss: number;
  readonly grad_norm: number;
  readonly learning_rate: number;
  readonly num_trajectories: number;
  readonly num_tokens: number;
  readonly num_trainable_tokens: number;
  readonly tokens_per_second: number;
  readonly "policy/entropy": number;
  readonly "tokens/trained": number;
  readonly "tokens/dropped": number;
  readonly "tokens/padding_share": number;
}

/** Trains one optimizer step and returns its metrics. The weights are checked after the last step. */
async function trainStep(
  { context, handle, base, signal }: JobScope,
  data: SftData,
  { step, number, isLast }: { readonly step: SftStep; readonly number: number; readonly isLast: boolean },
): Promise<SftStepMetrics> {
  const batch = buildSftBatch(step.examples.flatMap((example) => data.examples[example] ?? []));
  const startedMs = performance.now();
  const { logprobs, metrics } = await context.engine.forwardBackward(handle, batch.rows, batch.loss, { signal });
  requireFiniteLoss(metrics);
  const { gradNorm } = await context.engine.optimStep(handle, step.adam, { signal });
  requireFiniteNorm(gradNorm);
  const seconds = (performance.now() - startedMs) / 1000;
  if (isLast)
    await requireUsableModel({ engine: context.engine, handle, vocabularySize: base.vocabularySize, signal }, batch.rows, logprobs);
  return {
    gradient_step: number,
    loss: metrics.loss,
    grad_norm: gradNorm,
    learning_rate: step.adam.learningRate,
    num_trajectories: step.examples.length,
    num_tokens: batch.tokens,
    num_trainable_tokens: batch.trainedTokens,
    tokens_per_second: batch.tokens / Math.max(seconds, 1e-9),
    "policy/entropy": metrics.tokens === 0 ? 0 : metrics.entropy / metrics.tokens,
    "tokens/trained": metrics.tokens,
    "tokens/dropped": data.droppedTokens,
    "tokens/padding_share": paddingShare(metrics),
    ...threadMetrics(metrics),
    ...deviceMetrics(metrics),
  };
}

/**
 * Computes the loss on validation examples with the current weights, averaged like the loss of a training step; for the fine-tuning
 * interface also the token accuracy, which needs a second pass.
 */
async function measure(scope: JobScope, { validation, results }: SftWork): Promise<Record<string, number>> {
  const { context, handle, signal } = scope;
  const { rows, trainedTokens } = buildSftBatch(validation);
  const logprobs = await context.engine.forward(handle, rows, { signal });
  let loss = 0;
  for (const [index, { weights }] of rows.entries()) {
    for (let t = 0; t < weights.length; t++) if (weights[t] !== 0) loss -= (weights[t] as number) * (logprobs[index]?.[t] ?? NaN);
  }
  const accuracy = results === null ? null : await tokenAccuracy(scope, validation);
  return {
    "validation/loss": loss,
    "validation/tokens": trainedTokens,
    ...(accuracy === null ? {} : { "validation/token_accuracy": accuracy }),
  };
}

/** Metrics of steps that are summed over a job. */
const SUMMED = ["loss", "grad_norm", "num_trajectories", "num_tokens", "num_trainable_tokens"] as const;
/** Computes means and sums over all steps from the stored events, which include steps before a crash. */
async function summarize(store: Store, jobId: string): Promise<Record<string, number>> {
  const sums = { loss: 0, grad_norm: 0, num_trajectories: 0, num_tokens: 0, num_trainable_tokens: 0 };
  let count = 0;
  let last: StepEvent<SftStepMetrics> | undefined;
  for await (const step of stepEvents<SftStepMetrics>(store, jobId)) {
    for (const key of SUMMED) sums[key] += step[key] ?? NaN;
    count++;
    last = step;
  }
  const validation = Object.entries(last ?? {}).filter(([name]) => name.startsWith("validation/"));
  return knownMetrics({
    ...sums,
    loss: sums.loss / count,
    last_loss: last?.loss ?? 0,
    grad_norm: sums.grad_norm / count,
    learning_rate: last?.learning_rate ?? 0,
    num_gradient_steps: count,
    ...Object.fromEntries(validation),
  });
}
