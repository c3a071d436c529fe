import type { SftDataset, SftOptions } from "../../library/client/index.ts";
import type { UploadedDataset } from "../../library/dataset/index.ts";
import type { Environment } from "../../library/environment/index.ts";
import { InternalError } from "../../base/errors.ts";
import { evaluateCheckpoint } from "./evaluation.ts";
import type { Metrics } from "../../run/events.ts";
import { defaultLearningRate, rateNote, withRate, type DefaultRate } from "./learning-rate.ts";
import { RunLoop, type StepPlan } from "./loop.ts";
import { jobMetrics } from "./metrics.ts";
import { checkSftOptions, ORPHAN_WAIT_MS, type TrainSftOptions } from "./options.ts";
import { toDisk } from "../../run/names.ts";
import type { RunConfig, RunDirectory } from "../../run/run-directory.ts";
import { awaitJob } from "./run-job.ts";
import { TrainingRun, type RunKind } from "./training-run.ts";

/**
 * Trains a model on examples: one supervised job per dataset, with evaluation after jobs, early stop, retention of checkpoints and resume.
 *
 * The run starts immediately. If it is interrupted, the same call with the same `runDir` resumes it and re-attaches to a running job.
 *
 * @param options - Model, data and run directory; all other options have defaults.
 * @returns The started run; its `done` resolves to the result.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds. Every other error rejects `done`.
 * @example
 * ```ts
 * const run = trainSft({ model, data: "artifact:///team/demo/examples:v0", train: { epochs: 2, learningRate: 2e-4 }, runDir: "runs/sft" });
 * console.log((await run.done).metrics["loss"]);
 * ```
 */
export function trainSft<S>(options: TrainSftOptions<S>): TrainingRun {
  checkSftOptions(options);
  const count = typeof options.data === "function" ? (options.jobs as number) : datasets(options.data).length;
  return new TrainingRun(prepare(options, count), options);
}

/** Returns the definition of the run; its options get a default learning rate if they have none. */
async function prepare<S>(given: TrainSftOptions<S>, count: number): Promise<RunKind> {
  const { train, model, runDir, signal } = given;
  const isGiven = typeof train === "object" && (train.learningRate ?? null) !== null;
  const chosen = isGiven ? null : await defaultLearningRate(model, { kind: "sft", runDir, signal });
  const options = chosen === null ? given : { ...given, train: withRate(train, chosen.rate) };
  const loop = (directory: RunDirectory) => new RunLoop(directory, options, sftPlan(directory, options, count));
  return { config: configOf(options, count, chosen), count, loop, notes: chosen === null ? [] : [rateNote(chosen)] };
}

/** Returns the settings for `config.json`: a resume with other `fixed` settings is rejected. */
function configOf<S>(options: TrainSftOptions<S>, jobs: number, chosen: DefaultRate | null): RunConfig {
  const { model, data, train, environment } = options;
  return {
    version: 1,
    kind: "sft",
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
      default_learning_rate: chosen?.rate ?? null,
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
  return (Array.isArray(data) ? (data as readonly SftDataset[]) : [data as SftDataset]).map(withAddresses);
}

/** Returns a dataset with its addresses; a text is the address of training data without validation data. */
function withAddresses(dataset: SftDataset): UploadedDataset {
  return typeof dataset === "string" ? { url: dataset, validationUrl: null } : dataset;
}

/** Returns the steps of the run: one job on one dataset each, which makes many gradient steps, and the evaluation of its checkpoint. */
function sftPlan<S>(directory: RunDirectory, options: TrainSftOptions<S>, count: number): StepPlan<UploadedDataset> {
  const { data, environment } = options;
  return {
    count,
    maxAhead: 0,
    async prepare(step, { policyVersion, checkpointStep }) {
      const known = directory.state.data.get(step);
      if (known !== undefined) return known;
      await directory.record({ type: "step-start", step, policyVersion, checkpointStep });
      const dataset = typeof data === "function" ? withAddresses(await data(step)) : (datasets(data)[step] as UploadedDataset);
      const { url, validationUrl } = dataset;
      await directory.record({ type: "data-end", step, url, validationUrl });
      return { url, validationUrl };
    },
    train: (step, dataset, signal) => trainJob(directory, options, step, dataset, signal),
    evaluate(step, checkpointStep, signal) {
      if (environment === undefined) throw new InternalError("An evaluation without an environment passed the check of options");
      const environments = [environment as Environment<unknown>];
      return evaluateCheckpoint({ directory, options, environments, seed: 0, step, checkpointStep, signal });
    },
  };
}

/** Runs the job of a step and records the result. */
async function trainJob<S>(
  directory: RunDirectory,
  options: TrainSftOptions<S>,
  step: number,
  dataset: UploadedDataset,
  signal: AbortSignal,
): Promise<void> {
  const { model, train, jobRetries = 0, orphanWaitMs = ORPHAN_WAIT_MS } = options;
  const startedMs = performance.now();
  // A checkpoint after this one shows that the job ran, even if the response to its request was lost.
  const baselineStep = directory.state.steps.at(-1)?.checkpointStep ?? directory.state.startCheckpoint ?? 0;
  const config: SftOptions = typeof train === "function" ? train(step) : (train ?? {});
  const send = (idempotencyKey: string, inner: AbortSignal) => model.trainSft(dataset, { ...config, idempotencyKey, signal: inner });
  const outcome = await awaitJob({ directory, model, step, baselineStep, jobRetries, orphanWaitMs, send, signal });
  const losses = outcome.gradientSteps.flatMap((metrics) => metrics["loss"] ?? []);
  const mean: Metrics =
    losses.length === 0 ? {} : { loss: losses.reduce((sum, loss) => sum + loss, 0) / losses.length, last_loss: losses.at(-1) as number };
  await directory.record({
    type: "step-end",
    step,
    policyStep: null,
    checkpointStep: outcome.checkpointStep,
    metrics: {
      ...jobMetrics(outcome.metrics),
      ...sums(outcome.gradientSteps),
      ...mean,
      gradient_steps: losses.length,
      "time/step_seconds": (performance.now() - startedMs) / 1000,
    },
  });
}

/** Sums counts over the job's gradient steps, because the metrics of a gradient step count only that step. */
function sums(gradientSteps: readonly Metrics[]): Metrics {
  const names = ["num_trajectories", "num_tokens", "num_trainable_tokens"] as const;
  return Object.fromEntries(names.map((name) => [name, gradientSteps.reduce((sum, metrics) => sum + (metrics[name] ?? 0), 0)]));
}
