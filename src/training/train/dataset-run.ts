/** Training runs over datasets: one job per dataset, supervised or on preferences. */
import type { Job, SftDataset } from "../../library/client/index.ts";
import type { UploadedDataset } from "../../library/dataset/index.ts";
import type { Environment } from "../../library/environment/index.ts";
import { InternalError } from "../../base/errors.ts";
import { evaluateCheckpoint } from "./evaluation.ts";
import type { Metrics } from "../../run/events.ts";
import { rateNotes, withDefaultRate, type DefaultRate } from "./learning-rate.ts";
import { RunLoop, type StepPlan } from "./loop.ts";
import { jobMetrics } from "./metrics.ts";
import { checkDatasetOptions, ORPHAN_WAIT_MS, type DatasetRunOptions } from "./options.ts";
import { toDisk } from "../../run/names.ts";
import { newestCheckpointStep } from "../../run/resume-state.ts";
import type { RunConfig, RunDirectory } from "../../run/run-directory.ts";
import { awaitJob } from "./run-job.ts";
import { TrainingRun, type RunKind } from "./training-run.ts";

/** Kind of a run over datasets. `S` is the type of a scenario of the evaluations, `T` of the settings of a job. */
export interface DatasetRun<S, T extends object> {
  readonly kind: "sft" | "preference";
  readonly options: DatasetRunOptions<S, T>;
  /** Starts a job on a dataset. */
  readonly start: (
    dataset: UploadedDataset,
    settings: T & { readonly idempotencyKey: string; readonly signal: AbortSignal },
  ) => Promise<Job>;
  /** Metrics of gradient steps whose sum is a metric of the run's step. */
  readonly sums: readonly string[];
  /** Metrics of gradient steps whose mean is a metric of the run's step. */
  readonly means: readonly string[];
}

/**
 * Starts a run over datasets.
 *
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds.
 */
export function startDatasetRun<S, T extends { readonly learningRate?: unknown }>(run: DatasetRun<S, T>): TrainingRun {
  const { options } = run;
  checkDatasetOptions(options);
  const count = typeof options.data === "function" ? (options.jobs as number) : datasets(options.data).length;
  return new TrainingRun(prepare(run, count), options);
}

/** Returns the definition of a run of `count` jobs; its options get a default learning rate if they have none. */
async function prepare<S, T extends { readonly learningRate?: unknown }>(requested: DatasetRun<S, T>, count: number): Promise<RunKind> {
  const { options, defaultRate } = await withDefaultRate(requested.options, requested.kind);
  const run = { ...requested, options };
  const loop = (directory: RunDirectory) => new RunLoop(directory, options, datasetPlan(directory, run, count));
  return { config: configOf(run, count, defaultRate), count, loop, notes: rateNotes(defaultRate) };
}

/** Returns the settings for `config.json`: a resume with other `fixed` settings is rejected. */
function configOf<S, T extends object>({ kind, options }: DatasetRun<S, T>, jobs: number, defaultRate: DefaultRate | null): RunConfig {
  const { model, data, train, environment } = options;
  return {
    version: 1,
    kind,
    fixed: {
      environment: environment?.name ?? null,
      model: `${model.entity}/${model.project}/${model.name}`,
      model_id: model.id,
      base_model: model.baseModel,
      data: typeof data === "function" ? "a function of the job" : datasets(data).map(({ url }) => url),
    },
    free: {
      jobs,
      train: typeof train === "function" ? "a function of the job" : toDisk(train ?? {}),
      default_learning_rate: defaultRate?.rate ?? null,
      evaluation: toDisk(options.evaluation ?? null),
      keep_checkpoints: toDisk(options.keepCheckpoints ?? null),
      keep_trajectories: toDisk(options.keepTrajectories ?? null),
      chat_template_kwargs: options.chatTemplateKwargs ?? null,
      concurrency: options.concurrency ?? 64,
      timeout_ms: options.timeoutMs ?? null,
    },
  };
}

/** Returns the datasets as a list, each with its addresses. */
function datasets(data: SftDataset | readonly SftDataset[]): UploadedDataset[] {
  const list = Array.isArray(data) ? (data as readonly SftDataset[]) : [data as SftDataset];
  return list.map(withAddresses);
}

/** Returns a dataset with its addresses; a text is the address of training data without validation data. */
function withAddresses(dataset: SftDataset): UploadedDataset {
  return typeof dataset === "string" ? { url: dataset, validationUrl: null } : dataset;
}

/** Returns the steps of the run: one job on one dataset each, which makes many gradient steps, and the evaluation of its checkpoint. */
function datasetPlan<S, T extends object>(directory: RunDirectory, run: DatasetRun<S, T>, count: number): StepPlan<UploadedDataset> {
  const { options } = run;
  const { data, environment } = options;
  return {
    count,
    maxAhead: 0,
    async prepare(step, { policyVersion, checkpointStep }) {
      const recorded = directory.state.data.get(step);
      if (recorded !== undefined) return recorded;
      await directory.record({ type: "step-start", step, policyVersion, checkpointStep });
      const dataset = typeof data === "function" ? withAddresses(await data(step)) : (datasets(data)[step] as UploadedDataset);
      const { url, validationUrl } = dataset;
      await directory.record({ type: "data-end", step, url, validationUrl });
      return { url, validationUrl };
    },
    train: (step, dataset, signal) => trainJob(directory, run, { step, dataset, signal }),
    evaluate(step, checkpointStep, signal) {
      if (environment === undefined) throw new InternalError("An evaluation without an environment passed the check of options");
      const environments = [environment as Environment<unknown>];
      return evaluateCheckpoint({ directory, options, environments, seed: 0, step, checkpointStep, signal });
    },
  };
}

/** Runs the job of a step and records the result. */
async function trainJob<S, T extends object>(
  directory: RunDirectory,
  { options, start, means, sums }: DatasetRun<S, T>,
  { step, dataset, signal }: { readonly step: number; readonly dataset: UploadedDataset; readonly signal: AbortSignal },
): Promise<void> {
  const { model, train, jobRetries = 0, orphanWaitMs = ORPHAN_WAIT_MS } = options;
  const startedMs = performance.now();
  // A checkpoint after this one shows that the job ran, even if the response to its request was lost.
  const baselineStep = newestCheckpointStep(directory.state) ?? 0;
  const config = typeof train === "function" ? train(step) : (train ?? ({} as T));
  const send = (idempotencyKey: string, requestSignal: AbortSignal) => start(dataset, { ...config, idempotencyKey, signal: requestSignal });
  const outcome = await awaitJob({ directory, model, step, baselineStep, jobRetries, orphanWaitMs, send, signal });
  const steps = outcome.gradientSteps;
  const lastLoss = steps.at(-1)?.["loss"];
  await directory.record({
    type: "step-end",
    step,
    policyStep: null,
    checkpointStep: outcome.checkpointStep,
    metrics: {
      ...jobMetrics(outcome.metrics),
      ...sumsOf(steps, sums),
      ...meansOf(steps, means),
      ...(lastLoss === undefined ? {} : { last_loss: lastLoss }),
      gradient_steps: steps.length,
      "time/step_seconds": (performance.now() - startedMs) / 1000,
    },
  });
}

/** Sums counts over the job's gradient steps, because the metrics of a gradient step count only that step. */
function sumsOf(steps: readonly Metrics[], names: readonly string[]): Metrics {
  return Object.fromEntries(names.map((name) => [name, steps.reduce((sum, metrics) => sum + (metrics[name] ?? 0), 0)]));
}

/** Returns the means of metrics over the gradient steps that have them. */
function meansOf(steps: readonly Metrics[], names: readonly string[]): Metrics {
  const means: Record<string, number> = {};
  for (const name of names) {
    const values = steps.flatMap((metrics) => metrics[name] ?? []);
    if (values.length > 0) means[name] = values.reduce((sum, value) => sum + value, 0) / values.length;
  }
  return means;
}
