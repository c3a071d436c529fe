/** Options of training runs, and their validation before a run starts. */
import type { Writable } from "node:stream";
import type { Model, PreferenceOptions, RlOptions, SftDataset, SftOptions } from "../../library/client/index.ts";
import type { Environment, RolloutBroker } from "../../library/environment/index.ts";
import { ArgumentError } from "../../base/errors.ts";
import type { JsonObject } from "../../base/schema/index.ts";
import { checkAttemptOptions } from "../../library/rollout/check-options.ts";
import { checkInteger, refuse } from "../../base/util/values.ts";
import { checkProgress } from "../../base/progress/index.ts";
import type { TrajectoryGroup } from "../../base/trajectory/index.ts";
import { checkBatchOptions, weightedEnvironments, type BatchOptions } from "./batch/options.ts";
import type { Metrics } from "../../run/events.ts";
import type { KeepCheckpoints, KeepTrajectories } from "./retention.ts";
import type { Tracker } from "./tracker.ts";
import { checkTrackers } from "./tracker-feed.ts";

/** Options of the evaluations of a run, which measure its checkpoints on the environment's `eval` scenarios. */
export interface EvaluationOptions {
  /** Interval in steps, at least 1. A run also evaluates before its first step and after its last. @default 10 */
  readonly every?: number | undefined;
  /** Rollouts per scenario, at least 1. @default 1 */
  readonly samples?: number | undefined;
  /** Sampling temperature, at least 0. @default 0 with one sample, else 1 */
  readonly temperature?: number | undefined;
}

/** Progress of a run after a step. */
export interface StepProgress {
  /** Index of the step, from 0. */
  readonly step: number;
  /** Metrics of the step, as in its row of `metrics.jsonl`. */
  readonly metrics: Metrics;
  /** Metrics of the evaluation after the step; null if there was none. */
  readonly evaluation: Metrics | null;
}

/** Options that `trainRl` and `trainSft` have in common. */
export interface RunOptions {
  /** Model to train, starting from its newest checkpoint. */
  readonly model: Model;
  /** Directory of the run's files. If it already holds the run, the run resumes. */
  readonly runDir: string;
  /** Evaluations during training. @default none */
  readonly evaluation?: EvaluationOptions | undefined;
  /** Retention policy; other checkpoints of this run are deleted on the service. @default all checkpoints are kept */
  readonly keepCheckpoints?: KeepCheckpoints | undefined;
  /** Retention policy of the rollouts on disk. @default all rollouts are kept */
  readonly keepTrajectories?: KeepTrajectories | undefined;
  /** Called after each step; returning true ends the run with the reason `early-stop`. @default never */
  readonly stopWhen?: ((progress: StepProgress) => boolean) | undefined;
  /** Max new jobs for a step whose job failed, at least 0. @default 0 */
  readonly jobRetries?: number | undefined;
  /**
   * Milliseconds to look for a job's checkpoint after a request without a clear response, before the request is sent again, on
   * services without idempotency keys. Must exceed the duration of a job, or a batch may be trained twice. @default 600_000
   */
  readonly orphanWaitMs?: number | undefined;
  /**
   * Variables of the chat template for every turn of training and evaluation (`context.sampling.chatTemplateKwargs`), such as
   * `{ preserve_thinking: true }`. @default none
   */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
  /** Max concurrent rollouts. @default 64 */
  readonly concurrency?: number | undefined;
  /**
   * Whether workers play the rollouts of training and evaluations, instead of this process: `runWorker` of `whetstone/environment`, or
   * `whetstone worker`, on any machine, with the same environment. Needs environments with a `source`, and scenarios that are plain JSON
   * values. Group rewards and `scoreGroup` run in this process. The workers set the number of concurrent rollouts. With a broker, such as
   * `bullmq({ connection })` of `whetstone/brokers/bullmq`, the broker assigns rollouts to its workers; with true, the service does.
   * @default false
   */
  readonly workers?: boolean | RolloutBroker | undefined;
  /** Timeout of one attempt of a rollout in milliseconds. @default no limit */
  readonly timeoutMs?: number | undefined;
  /**
   * Display of the progress on standard error: a block on a terminal, else a line per step. False shows nothing, a stream is written to
   * instead of standard error.
   *
   * @default true, or as the environment variable `WHETSTONE_PROGRESS` says
   */
  readonly progress?: boolean | Writable | undefined;
  /**
   * Destinations of the run's metrics and rollouts, such as `tensorboardTracker()` of `whetstone/trackers/tensorboard`. A failing tracker
   * does not stop the run. @default none
   */
  readonly trackers?: readonly Tracker[] | undefined;
  /** Whether `report.html` is written when the run ends. @default true */
  readonly report?: boolean | undefined;
  /** Stops the run immediately: `done` rejects with the signal's reason. The run can be resumed. */
  readonly signal?: AbortSignal | undefined;
}

/** Environment, number of steps and settings of a reinforcement learning run, see `trainRl`. */
export interface TrainRlOptions<S> extends RunOptions, BatchOptions<S> {
  /** Training steps of the whole run, including the steps before a resume. */
  readonly steps: number;
  /** Scenarios per step, each played as one group. @default 16 */
  readonly scenariosPerStep?: number | undefined;
  /** Rollouts per scenario (group size), at least 2. @default 8 */
  readonly groupSize?: number | undefined;
  /** Max steps that rollouts may be ahead of training. With 0, each step samples from the checkpoint of the previous step. @default 0 */
  readonly maxStepsOffPolicy?: number | undefined;
  /**
   * Whether each step samples from exactly the checkpoint `maxStepsOffPolicy` steps back, even if a newer checkpoint exists. The run is
   * then a function of its settings, as with `maxStepsOffPolicy` 0. @default false: samples from the newest checkpoint
   */
  readonly isLagExact?: boolean | undefined;
  /**
   * Called with each training group after its rollouts and group rewards; returns the group to use instead, such as a control with permuted
   * rewards. Rewards that compare the rollouts of a scenario belong into the environment's `groupRewards`. @default keeps the group
   */
  readonly scoreGroup?: ((group: TrajectoryGroup) => TrajectoryGroup | Promise<TrajectoryGroup>) | undefined;
  /**
   * Settings of each step's job, or a function of the step for schedules. Without `learningRate`, the run chooses a rate by the size of the
   * model and the kind of training, prints it, and keeps it when it resumes. @default the service's
   */
  readonly train?: RlOptions | ((step: number) => RlOptions) | undefined;
  /** Seed of the scenario order and of the rollouts; an integer. @default 0 */
  readonly seed?: number | undefined;
  /** Sampling temperature of the training rollouts; the loss expects 1. @default 1 */
  readonly temperature?: number | undefined;
  /** Retries of a rollout that failed with a transient error. @default 0 */
  readonly retries?: number | undefined;
  /** Max failed rollouts per step, as a count or, below 1, as a fraction. @default 0.05 */
  readonly maxExceptions?: number | undefined;
  /**
   * Interval in steps for fetching the trainer's per-token advantages and log-probabilities, stored in `trained/` for the report. Unless
   * 0 (never), the last step is always included. Ignored until the service has shown that it supports the extensions. @default 10
   */
  readonly tokenReportEvery?: number | undefined;
  /**
   * Consecutive steps with nothing to learn after which the run ends with the reason `nothing-to-learn`. If all steps of the run had
   * nothing to learn, the run fails with `E_PREFLIGHT` instead. @default 10
   */
  readonly maxSkippedSteps?: number | undefined;
}

/** Datasets of a run with one job each, and settings `T` of the jobs. */
export interface DatasetRunOptions<S, T> extends RunOptions {
  /**
   * Datasets, one job each: addresses (`artifact:///…`), or results of `uploadDataset` or `uploadPreferences`; a job also measures the loss on
   * the validation half of such a result. Or a function that creates and uploads the dataset of a job right before the job (requires `jobs`).
   */
  readonly data: SftDataset | readonly SftDataset[] | ((job: number) => Promise<SftDataset>);
  /** Number of jobs if `data` is a function. */
  readonly jobs?: number | undefined;
  /**
   * Settings of each job (epochs, batch size, learning rate), or a function of the job. Without `learningRate`, the run chooses a rate by
   * the size of the model and the kind of training, prints it, and keeps it when it resumes. @default the service's
   */
  readonly train?: T | ((job: number) => T) | undefined;
  /** Environment of the evaluations; required with `evaluation`. */
  readonly environment?: Environment<S> | undefined;
}

/** Datasets and settings of a supervised run, see `trainSft`. */
export type TrainSftOptions<S> = DatasetRunOptions<S, SftOptions>;
/** Datasets and settings of a run on preferences, see `trainPreferences`. */
export type TrainPreferencesOptions<S> = DatasetRunOptions<S, PreferenceOptions>;

/** Default of {@link RunOptions.orphanWaitMs}, milliseconds. */
export const ORPHAN_WAIT_MS = 600_000;

/** Whether workers play the rollouts of a run. */
export function hasWorkers({ workers }: Pick<RunOptions, "workers">): boolean {
  return workers !== undefined && workers !== false;
}

/**
 * Checks the options that both kinds of run have in common.
 *
 * @throws ArgumentError `E_ARGUMENT` for a value outside its bounds.
 */
export function checkRunOptions(options: RunOptions): void {
  if (typeof options.runDir !== "string" || options.runDir === "")
    throw new ArgumentError("Expected `runDir` to be a path", { param: "runDir" });
  checkIntegerOption("jobRetries", options.jobRetries, 0);
  checkIntegerOption("concurrency", options.concurrency, 1);
  if (hasWorkers(options) && options.concurrency !== undefined) {
    throw new ArgumentError("`concurrency` has no effect with `workers`; set it for each worker", { param: "concurrency" });
  }
  checkIntegerOption("orphanWaitMs", options.orphanWaitMs, 0);
  checkIntegerOption("keepTrajectories.every", options.keepTrajectories?.every, 1);
  checkIntegerOption("evaluation.every", options.evaluation?.every, 1);
  checkEvaluationSampling(options.evaluation, "evaluation.");
  checkAttemptOptions({ timeoutMs: options.timeoutMs, chatTemplateKwargs: options.chatTemplateKwargs });
  checkProgress(options.progress);
  checkTrackers(options.trackers);
  checkKeepCheckpoints(options);
}

/** @throws ArgumentError `E_ARGUMENT` for an invalid `keepCheckpoints`. */
function checkKeepCheckpoints({ keepCheckpoints, evaluation }: RunOptions): void {
  if (keepCheckpoints === undefined) return;
  const { recent, best } = keepCheckpoints;
  checkInteger("keepCheckpoints.recent", recent, 1);
  if (best === undefined) return;
  checkInteger("keepCheckpoints.best.count", best.count, 1);
  if (best.metric.startsWith("eval/") && evaluation === undefined) {
    throw new ArgumentError("`keepCheckpoints.best.metric` is a metric of evaluations; give `evaluation` too", {
      param: "keepCheckpoints.best.metric",
    });
  }
}

/**
 * Checks the options of the rollouts of evaluations.
 *
 * @param prefix - Prefix of the names of the options. @default none
 * @throws ArgumentError `E_ARGUMENT` for a value outside its bounds.
 */
export function checkEvaluationSampling(
  { samples, temperature }: Pick<EvaluationOptions, "samples" | "temperature"> = {},
  prefix: "" | "evaluation." = "",
): void {
  checkIntegerOption(`${prefix}samples`, samples, 1);
  if (temperature !== undefined && !(temperature >= 0 && temperature < Infinity))
    refuse(`${prefix}temperature`, "a finite number of at least 0", temperature);
}

/**
 * Checks the options of `trainRl`.
 *
 * @throws ArgumentError `E_ARGUMENT` for a value outside its bounds.
 */
export function checkRlOptions<S>(options: TrainRlOptions<S>): void {
  checkRunOptions(options);
  checkInteger("steps", options.steps, 1);
  checkIntegerOption("scenariosPerStep", options.scenariosPerStep, 1);
  checkIntegerOption("groupSize", options.groupSize, 2);
  checkIntegerOption("maxStepsOffPolicy", options.maxStepsOffPolicy, 0);
  checkIntegerOption("seed", options.seed, Number.MIN_SAFE_INTEGER);
  checkIntegerOption("retries", options.retries, 0);
  checkIntegerOption("maxSkippedSteps", options.maxSkippedSteps, 1);
  checkIntegerOption("tokenReportEvery", options.tokenReportEvery, 0);
  checkIntegerOption("replacements", options.replacements, 0);
  checkAttemptOptions({ temperature: options.temperature, maxExceptions: options.maxExceptions });
  checkBatchOptions(options);
  const environments = weightedEnvironments(options.environment).map(({ environment }) => environment);
  checkEvaluation(options.evaluation, environments.find(({ scenarios }) => scenarios.eval.length > 0) ?? environments[0]);
}

/**
 * Checks the options of `trainSft` and `trainPreferences`.
 *
 * @throws ArgumentError `E_ARGUMENT` for a value outside its bounds.
 */
export function checkDatasetOptions<S, T>(options: DatasetRunOptions<S, T>): void {
  checkRunOptions(options);
  if (typeof options.data === "function") checkInteger("jobs", options.jobs as number, 1);
  else {
    checkIntegerOption("jobs", options.jobs, 1);
    if (options.jobs !== undefined)
      throw new ArgumentError("`jobs` goes with `data` as a function; a list of datasets has one job each", { param: "jobs" });
  }
  if (Array.isArray(options.data) && options.data.length === 0)
    throw new ArgumentError("Expected `data` to name at least one dataset", { param: "data" });
  if (options.evaluation !== undefined) checkEvaluation(options.evaluation, options.environment);
}

/**
 * Checks that the environment of evaluations has `eval` scenarios.
 *
 * @throws ArgumentError `E_ARGUMENT` without an environment or without scenarios, unless `evaluation` is undefined.
 */
export function checkEvaluation<S>(evaluation: EvaluationOptions | undefined, environment: Environment<S> | undefined): void {
  if (evaluation === undefined) return;
  if (environment === undefined) throw new ArgumentError("`evaluation` needs an `environment` to measure on", { param: "environment" });
  if (environment.scenarios.eval.length === 0) {
    throw new ArgumentError(`\`evaluation\` needs scenarios to measure on, but \`scenarios.eval\` of \`${environment.name}\` is empty`, {
      param: "evaluation",
    });
  }
}

/**
 * Checks an integer option that may be absent.
 *
 * @throws ArgumentError `E_ARGUMENT` for another value than an integer of at least `min`.
 */
export function checkIntegerOption(param: string, value: number | undefined, min: number): void {
  if (value !== undefined) checkInteger(param, value, min);
}
