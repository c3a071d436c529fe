/** Steps of a job over a dataset: training, validation, progress commits, and the metrics of the whole job. */
import type { TrainingPlan, TrainingStep } from "../../learner/index.ts";
import type { Store } from "../store/tables.ts";
import type { ExampleData } from "../training-data/example-data.ts";
import { requireFiniteStep } from "./finite-step.ts";
import { knownMetrics } from "./metrics.ts";
import { warnOfMissingTokens } from "./missing-tokens.ts";
import type { StepResults } from "./fine-tuning-results.ts";
import { JobPaused } from "./pause.ts";
import type { JobScope } from "./run-job.ts";
import { stepEvents } from "./step-events.ts";

/** Metrics by name. */
type Metrics = Readonly<Record<string, number>>;

/** Optimizer step with its number, from 1. */
export interface NumberedStep {
  readonly step: TrainingStep;
  readonly number: number;
  /** Whether the step is the last of the job. */
  readonly isLast: boolean;
}

/** Training of a kind of job over a dataset. */
export interface DatasetTrainer {
  readonly plan: TrainingPlan;
  readonly data: ExampleData;
  /** Noun for one and for many examples, for warnings. */
  readonly nouns: { readonly one: string; readonly many: string };
  /** Metrics of the start event and of the checkpoint: counts of dropped and of validation examples. */
  readonly counts: Metrics;
  /** Results for the fine-tuning interface; null for jobs of the job interface. */
  readonly results: StepResults | null;
  /** Prepares the computation. Called after the start event. */
  readonly begin: () => Promise<StepFunctions>;
}

/** Computation of a job's steps. */
export interface StepFunctions {
  /** Trains one step and returns its metrics. */
  readonly train: (step: NumberedStep) => Promise<Metrics>;
  /** Measures the validation examples; null without such examples. */
  readonly validate: (() => Promise<Metrics>) | null;
}

/**
 * Trains one optimizer step per batch, starting after the last committed step.
 *
 * @throws JobPaused after the current step, if the job is to stop after it.
 */
export async function runDatasetSteps(scope: JobScope, { plan, data, nouns, counts, results, begin }: DatasetTrainer): Promise<void> {
  const { context, job, signal, emit } = scope;
  await emit({ key: "start", type: "training_started", data: { num_sequences: plan.stepCount, ...counts } });
  await warnOfMissingTokens(scope, data.missingBytes, { count: data.examplesWithMissingBytes, ...nouns });
  const { train, validate } = await begin();
  let done = job.committed_steps;
  // The last start may have been interrupted between progress and checkpoint.
  await results?.afterCommit(done);
  for (const step of plan.steps(done)) {
    done++;
    signal.throwIfAborted();
    const number = done;
    const metrics = await requireFiniteStep(`Step ${number}`, () => train({ step, number, isLast: number === plan.stepCount }));
    const validation =
      step.validates && validate !== null ? await requireFiniteStep(`The validation after step ${number}`, () => validate()) : {};
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
}

/** Names of the metrics of a step that are summed over a job, and of which the job has the mean. */
export interface SummaryNames {
  readonly sums: readonly string[];
  readonly means: readonly string[];
}

/**
 * Computes sums and means over all steps from the stored events, which include steps before a crash. The last loss, learning rate and
 * validation metrics are taken from the last step.
 */
export async function summarizeSteps(store: Store, jobId: string, { sums, means }: SummaryNames): Promise<Record<string, number>> {
  const totals: Record<string, number> = Object.fromEntries([...means, ...sums].map((name) => [name, 0]));
  let count = 0;
  let last: Metrics = {};
  for await (const step of stepEvents<Metrics>(store, jobId)) {
    for (const name of Object.keys(totals)) totals[name]! += step[name] ?? NaN;
    count++;
    last = step;
  }
  for (const name of means) totals[name]! /= count;
  const validation = Object.fromEntries(Object.entries(last).filter(([name]) => name.startsWith("validation/")));
  return knownMetrics({
    ...totals,
    last_loss: last["loss"] ?? 0,
    learning_rate: last["learning_rate"] ?? 0,
    num_gradient_steps: count,
    ...validation,
  });
}
