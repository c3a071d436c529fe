import type { Model, RlOptions, SftOptions } from "../client/index.ts";
import type { Environment } from "../environment/index.ts";
import { ArgumentError } from "../errors.ts";
import type { TrajectoryGroup } from "../trajectory/index.ts";
import type { Metrics } from "./events.ts";
import { checkKeepCheckpoints, type KeepCheckpoints } from "./retention.ts";

/** How a run measures its checkpoints on the environment's `eval` scenarios. */
export interface EvaluationOptions {
  /** After every so many steps, before the first and after the last. @default 10 */
  readonly every?: number | undefined;
  /** Rollouts per scenario. @default 1 */
  readonly samples?: number | undefined;
  /** @default 0 with one sample, else 1 */
  readonly temperature?: number | undefined;
}

/** What a run has come to after a step. */
export interface StepProgress {
  /** From 0. */
  readonly step: number;
  /** The step's row of `metrics.jsonl`. */
  readonly metrics: Metrics;
  /** The evaluation after it, when there was one. */
  readonly evaluation: Metrics | null;
}

/** What both kinds of run take. */
export interface RunOptions {
  /** The model to train; the run begins at its newest checkpoint. */
  readonly model: Model;
  /** Where everything is kept. A directory with a run in it is gone on with. */
  readonly runDir: string;
  /** Measures checkpoints while training. @default none */
  readonly evaluation?: EvaluationOptions | undefined;
  /** Which checkpoints to keep; others of this run are deleted on the service. @default all */
  readonly keepCheckpoints?: KeepCheckpoints | undefined;
  /** Ends the run early when it says so; asked after each step. @default never */
  readonly stopWhen?: ((progress: StepProgress) => boolean) | undefined;
  /** Failed jobs of one step to try again. @default 0 */
  readonly jobRetries?: number | undefined;
  /**
   * On a service without idempotency keys: milliseconds to look for the checkpoint of a job whose request had no clear answer, before it
   * is sent again. Longer than a job takes, or a batch may be trained twice. @default 600_000
   */
  readonly orphanWaitMs?: number | undefined;
  /** Rollouts at the same time. @default 64 */
  readonly concurrency?: number | undefined;
  /** Milliseconds for one attempt of a rollout. @default no limit */
  readonly timeoutMs?: number | undefined;
  /** Whether `report.html` is written when the run is over. @default true */
  readonly report?: boolean | undefined;
  /** Ends the run now: `done` rejects with the signal's reason. It can be gone on with. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of `trainRl`. */
export interface TrainRlOptions<S> extends RunOptions {
  readonly environment: Environment<S>;
  /** Training steps of the whole run, those before a resume included. */
  readonly steps: number;
  /** Scenarios, and so groups, per step. @default 16 */
  readonly scenariosPerStep?: number | undefined;
  /** Rollouts per scenario, at least 2. @default 8 */
  readonly groupSize?: number | undefined;
  /** Steps that rollouts may be ahead of training: 0 = each step samples from the checkpoint of the one before. @default 0 */
  readonly maxStepsOffPolicy?: number | undefined;
  /**
   * Sample each step from exactly the checkpoint `maxStepsOffPolicy` steps back, also where a newer one is there by then. The run is
   * then a function of its settings, as with `maxStepsOffPolicy` 0. @default false: the newest
   */
  readonly isLagExact?: boolean | undefined;
  /**
   * Called with each training group as its rollouts end: may give another one in its place, for rewards that compare the rollouts of a
   * scenario with each other. @default keeps it
   */
  readonly scoreGroup?: ((group: TrajectoryGroup) => TrajectoryGroup | Promise<TrajectoryGroup>) | undefined;
  /** Settings of each step's job; a function of the step for schedules. @default the service's */
  readonly train?: RlOptions | ((step: number) => RlOptions) | undefined;
  /** Where scenarios' order and rollouts' seeds come from. @default 0 */
  readonly seed?: number | undefined;
  /** Of the training rollouts; the loss expects 1. @default 1 */
  readonly temperature?: number | undefined;
  /** Attempts after the first of a rollout that failed with something that may pass. @default 0 */
  readonly retries?: number | undefined;
  /** Failed rollouts of one step to put up with: a count, or below 1 a fraction. @default 0.05 */
  readonly maxExceptions?: number | undefined;
  /**
   * Every so many steps, and at the last, the service is asked for what the trainer made of each token, kept in `trained/` for the report; 0 = never.
   * Only where the service has shown that it has extensions. @default 10
   */
  readonly tokenReportEvery?: number | undefined;
  /**
   * Steps in a row from which nothing could be learned before the run ends with the reason `nothing-to-learn`; it fails with
   * `E_PREFLIGHT` when no step before them taught anything either. @default 10
   */
  readonly maxSkippedSteps?: number | undefined;
}

/** Options of `trainSft`. */
export interface TrainSftOptions<S> extends RunOptions {
  /**
   * The datasets (`artifact:///…`), one job each; or a function that makes and uploads the dataset of a job when its turn comes
   * (then give `jobs`).
   */
  readonly data: string | readonly string[] | ((job: number) => Promise<string>);
  /** Number of jobs where `data` is a function. */
  readonly jobs?: number | undefined;
  /** Settings of each job: epochs, batch size, learning rate. @default the service's */
  readonly train?: SftOptions | ((job: number) => SftOptions) | undefined;
  /** What `evaluation` measures on. */
  readonly environment?: Environment<S> | undefined;
}

/** How long an unclear request is looked for by default, milliseconds. */
export const ORPHAN_WAIT_MS = 600_000;

/** @throws ArgumentError `E_ARGUMENT` for a value outside its bounds. */
export function checkRunOptions(options: RunOptions): void {
  if (typeof options.runDir !== "string" || options.runDir === "")
    throw new ArgumentError("Expected `runDir` to be a path", { param: "runDir" });
  checkInteger("jobRetries", options.jobRetries, 0);
  checkInteger("concurrency", options.concurrency, 1);
  checkInteger("orphanWaitMs", options.orphanWaitMs, 0);
  checkInteger("evaluation.every", options.evaluation?.every, 1);
  checkInteger("evaluation.samples", options.evaluation?.samples, 1);
  if (options.keepCheckpoints !== undefined) checkKeepCheckpoints(options.keepCheckpoints);
  if (options.keepCheckpoints?.best?.metric.startsWith("eval/") && options.evaluation === undefined) {
    throw new ArgumentError("`keepCheckpoints.best.metric` is a metric of evaluations; give `evaluation` too", {
      param: "keepCheckpoints.best.metric",
    });
  }
}

/** @throws ArgumentError `E_ARGUMENT` for a value outside its bounds. */
export function checkRlOptions<S>(options: TrainRlOptions<S>): void {
  checkRunOptions(options);
  checkInteger("steps", options.steps, 1, true);
  checkInteger("scenariosPerStep", options.scenariosPerStep, 1);
  checkInteger("groupSize", options.groupSize, 2);
  checkInteger("maxStepsOffPolicy", options.maxStepsOffPolicy, 0);
  checkInteger("seed", options.seed, Number.MIN_SAFE_INTEGER);
  checkInteger("retries", options.retries, 0);
  checkInteger("maxSkippedSteps", options.maxSkippedSteps, 1);
  checkInteger("tokenReportEvery", options.tokenReportEvery, 0);
  checkEvaluation(options.evaluation, options.environment);
}

/** @throws ArgumentError `E_ARGUMENT` for a value outside its bounds. */
export function checkSftOptions<S>(options: TrainSftOptions<S>): void {
  checkRunOptions(options);
  checkInteger("jobs", options.jobs, 1, typeof options.data === "function");
  if (typeof options.data !== "function" && options.jobs !== undefined) {
    throw new ArgumentError("`jobs` goes with `data` as a function; a list of datasets has one job each", { param: "jobs" });
  }
  if (Array.isArray(options.data) && options.data.length === 0)
    throw new ArgumentError("Expected `data` to name at least one dataset", { param: "data" });
  if (options.evaluation !== undefined) checkEvaluation(options.evaluation, options.environment);
}

function checkEvaluation<S>(evaluation: EvaluationOptions | undefined, environment: Environment<S> | undefined): void {
  if (evaluation === undefined) return;
  if (environment === undefined) throw new ArgumentError("`evaluation` needs an `environment` to measure on", { param: "environment" });
  if (environment.scenarios.eval.length === 0) {
    throw new ArgumentError(`\`evaluation\` needs scenarios to measure on, but \`scenarios.eval\` of \`${environment.name}\` is empty`, {
      param: "evaluation",
    });
  }
}

function checkInteger(param: string, value: number | undefined, min: number, isRequired = false): void {
  if (value === undefined && !isRequired) return;
  if (Number.isSafeInteger(value) && (value as number) >= min) return;
  throw new ArgumentError(`Expected \`${param}\` to be an integer of at least ${min}, got \`${value}\``, { param });
}
