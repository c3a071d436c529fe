/**
 * Loop over the steps of an SFT or preference job: training, validation, events and commits of progress. `sft.ts` and `preference.ts` supply
 * the computation as {@link DatasetTrainer}.
 */
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

/** Data, plan and computation of a job, in the form that the loop needs. */
export interface DatasetTrainer {
  readonly plan: TrainingPlan;
  readonly data: ExampleData;
  /** Noun for one and for many examples, for warnings. */
  readonly nouns: { readonly one: string; readonly many: string };
  /** Metrics of the start event and of the checkpoint: counts of dropped and of validation examples. */
  readonly counts: Metrics;
  /** Results for the fine-tuning interface; null for jobs of the job interface. */
  readonly results: StepResults | null;
  /** Prepares the computation, such as the values of a reference policy. Called once, after the start event. */
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
 * Trains one optimizer step per batch, starting after the last committed step. A resumed job emits the events of repeated steps again; their
 * keys are known, so they are not stored twice.
 *
 * @throws JobPaused after the current step, if the job is to stop after it.
 */
export async function runDatasetSteps(scope: JobScope, { plan, data, nouns, counts, results, begin }: DatasetTrainer): Promise<void> {
  const { context, job, signal, emit } = scope;
  await emit({ key: "start", type: "training_started", data: { num_sequences: plan.stepCount, ...counts } });
  await warnOfMissingTokens(scope, data.missingBytes, { count: data.examplesWithMissingBytes, ...nouns });
  const { train, validate } = await begin();
  let completed = job.committed_steps;
  // An earlier attempt may have been interrupted between the commit of this step and its checkpoint.
  await results?.afterCommit(completed);
  for (const step of plan.steps(completed)) {
    completed++;
    signal.throwIfAborted();
    const number = completed;
    const metrics = await requireFiniteStep(`Step ${number}`, () => train({ step, number, isLast: number === plan.stepCount }));
    const validation =
      step.validates && validate !== null ? await requireFiniteStep(`The validation after step ${number}`, () => validate()) : {};
    const reported = await requireFiniteStep(`Step ${number}`, async () => knownMetrics({ ...metrics, ...validation }));
    await emit({ key: `step:${number}`, type: "gradient_step", data: reported });
    // `commitCheckpoint` of `states.ts` commits the last step together with the end of the job.
    if (completed === plan.stepCount) break;
    const isPausing = scope.isPausing();
    const isRegularCommit = completed % context.limits.commitEverySteps === 0;
    if (isRegularCommit || isPausing || results?.hasCheckpointAt(completed) === true) await scope.commitProgress(completed);
    await results?.afterCommit(completed);
    if (isPausing) throw new JobPaused(completed);
  }
}

/** Names of the metrics of a step that a job reports as sums over its steps (`sums`) and as means of them (`means`). */
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
  let stepCount = 0;
  let lastStep: Metrics = {};
  for await (const step of stepEvents<Metrics>(store, jobId)) {
    // An optional metric that the engine does not report becomes NaN, which `knownMetrics` leaves out below.
    for (const name of Object.keys(totals)) totals[name]! += step[name] ?? NaN;
    stepCount++;
    lastStep = step;
  }
  for (const name of means) totals[name]! /= stepCount;
  const validation = Object.fromEntries(Object.entries(lastStep).filter(([name]) => name.startsWith("validation/")));
  return knownMetrics({
    ...totals,
    last_loss: lastStep["loss"] ?? 0,
    learning_rate: lastStep["learning_rate"] ?? 0,
    num_gradient_steps: stepCount,
    ...validation,
  });
}
