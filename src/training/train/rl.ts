/** Training runs by reinforcement learning: configuration, and the training of one step on its prepared batch. */
import type { Model, RlOptions } from "../../library/client/index.ts";
import { examinationOf } from "../../library/client/examination.ts";
import type { TrajectoryGroup as WireTrajectoryGroup } from "../../base/schema/index.ts";
import { preflight, PreflightError, type Finding, type TrajectoryGroup } from "../../base/trajectory/index.ts";
import { toolErrorWarnings } from "../../base/trajectory/tool-errors.ts";
import { ageOf, discardMessage } from "./batch/filters.ts";
import { weightedEnvironments, type BatchOptions } from "./batch/options.ts";
import { prepareBatch, type PreparedBatch } from "./batch/prepare.ts";
import { ScenarioSampler } from "./batch/sampler.ts";
import { evaluateCheckpoint } from "./evaluation.ts";
import type { Metrics } from "../../run/events.ts";
import { RunLoop, type StepPlan } from "./loop.ts";
import { batchMetrics, environmentMetrics, jobMetrics, rolloutMetrics } from "./metrics.ts";
import { defaultRateOf, isStalled, rateNotes, STALL_STEPS, TINY_RATE, withDefaultRate, type DefaultRate } from "./learning-rate.ts";
import { checkRlOptions, hasWorkers, ORPHAN_WAIT_MS, type TrainRlOptions } from "./options.ts";
import { toDisk } from "../../run/names.ts";
import type { RunConfig, RunDirectory } from "../../run/run-directory.ts";
import { awaitJob, type JobStep } from "./run-job.ts";
import { newestCheckpointStep, type CompletedStep } from "../../run/resume-state.ts";
import { deletePlans, isMissingRollout, withReferences } from "./stored-rollouts.ts";
import { keepTokenReport } from "./token-report.ts";
import { TrainingRun, type RunKind } from "./training-run.ts";

/** Default of {@link TrainRlOptions.maxSkippedSteps}. */
const MAX_SKIPPED_STEPS = 10;

/**
 * Trains a model by reinforcement learning on an environment: each step plays rollouts and runs a training job on them. Supports
 * evaluation, retention of checkpoints and resume.
 *
 * The run starts immediately. If it is interrupted, the same call with the same `runDir` resumes it: it re-attaches to a running job and
 * does not replay finished groups. With `maxStepsOffPolicy` 0 the result is the same as without the interruption.
 *
 * By default a step trains on `scenariosPerStep` groups, with scenarios in order. `refill`, `filters`, `curriculum`, several environments
 * and `replacements` select other groups and rollouts, see {@link BatchOptions}.
 *
 * @param options - Model, environment, number of steps and run directory; all other options have defaults.
 * @returns The started run; its `done` resolves to the result.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds. Every other error rejects `done`.
 * @example
 * ```ts
 * const run = trainRl({ model, environment, steps: 20, groupSize: 8, maxStepsOffPolicy: 1, runDir: "runs/reverse" });
 * for await (const event of run) if (event.type === "step-end") console.log(event.step, event.metrics["reward/mean"]);
 * ```
 * @example
 * ```ts
 * // Replaces groups with equal rewards, and prefers scenarios that are solved sometimes.
 * const selection = { refill: { maxGroups: 64 }, curriculum: { pool: 1000 } };
 * await trainRl({ model, environment, steps: 20, ...selection, runDir: "runs/selected" }).done;
 * ```
 */
export function trainRl<S>(options: TrainRlOptions<S>): TrainingRun {
  checkRlOptions(options);
  return new TrainingRun(prepare(options), options);
}

/** Returns the definition of the run; its options get a default learning rate if they have none. */
async function prepare<S>(givenOptions: TrainRlOptions<S>): Promise<RunKind> {
  const { options, defaultRate } = await withDefaultRate(givenOptions, "rl");
  const loop = (directory: RunDirectory) => new RunLoop(directory, options, rlPlan(directory, options));
  return { config: configOf(options, defaultRate), count: options.steps, loop, notes: rateNotes(defaultRate) };
}

/** Returns the settings for `config.json`: a resume with other `fixed` settings is rejected. */
function configOf<S>(options: TrainRlOptions<S>, defaultRate: DefaultRate | null): RunConfig {
  const { model, environment, train } = options;
  const { scenariosPerStep = 16, groupSize = 8, seed = 0, temperature = 1, maxStepsOffPolicy = 0 } = options;
  const environmentNames = weightedEnvironments(environment).map((each) => each.environment.name);
  return {
    version: 1,
    kind: "rl",
    fixed: {
      environment: environmentNames.join(", "),
      model: `${model.entity}/${model.project}/${model.name}`,
      model_id: model.id,
      base_model: model.baseModel,
      scenarios_per_step: scenariosPerStep,
      group_size: groupSize,
      seed,
      temperature,
      chat_template_kwargs: options.chatTemplateKwargs ?? null,
      ...batchConfig(options),
    },
    free: {
      steps: options.steps,
      max_steps_off_policy: maxStepsOffPolicy,
      is_lag_exact: options.isLagExact ?? false,
      train: typeof train === "function" ? "a function of the step" : toDisk(train ?? {}),
      default_learning_rate: defaultRate?.rate ?? null,
      evaluation: toDisk(options.evaluation ?? null),
      keep_checkpoints: toDisk(options.keepCheckpoints ?? null),
      keep_trajectories: toDisk(options.keepTrajectories ?? null),
      concurrency: hasWorkers(options) ? null : (options.concurrency ?? 64),
      workers: hasWorkers(options),
      timeout_ms: options.timeoutMs ?? null,
    },
  };
}

/** Returns the settings that select the training data; null for each at its default, as in directories of earlier versions. */
function batchConfig<S>({
  environment,
  refill,
  filters,
  curriculum,
  replacements = 0,
  scoreTimeouts,
}: BatchOptions<S>): RunConfig["fixed"] {
  const environments = weightedEnvironments(environment).map((each) => ({ name: each.environment.name, weight: each.weight }));
  const { key, ...plainSettings } = curriculum ?? {};
  return {
    environments: environments.length > 1 ? environments : null,
    refill: toDisk(refill ?? null),
    filters: toDisk(filters ?? null),
    curriculum: curriculum === undefined ? null : toDisk({ ...plainSettings, key: key === undefined ? "scenario id" : "a function" }),
    replacements: replacements === 0 ? null : replacements,
    score_timeouts: scoreTimeouts === true ? true : null,
  };
}

/** Returns the steps of the run for its loop: their preparation, training and evaluation. */
function rlPlan<S>(directory: RunDirectory, options: TrainRlOptions<S>): StepPlan<PreparedBatch> {
  const { seed = 0, maxStepsOffPolicy = 0 } = options;
  const environments = weightedEnvironments(options.environment).map(({ environment }) => environment);
  const sampler = new ScenarioSampler(options as TrainRlOptions<unknown>);
  return {
    count: options.steps,
    maxAhead: maxStepsOffPolicy,
    isLagExact: options.isLagExact,
    prepare: (step, context) => prepareBatch({ directory, options, sampler }, step, context),
    isExhausted: () => isExhausted(directory.state.steps, options.maxSkippedSteps ?? MAX_SKIPPED_STEPS),
    train: (step, batch, signal) => trainStep({ directory, options }, { step, batch, signal }),
    evaluate: (step, checkpointStep, signal) =>
      evaluateCheckpoint({ directory, options, environments, seed, step, checkpointStep, signal }),
  };
}

/** Run that trains a step: its directory and options. */
interface RlRun<S> {
  readonly directory: RunDirectory;
  readonly options: TrainRlOptions<S>;
}

/** Trains one step on its groups: checks the batch, runs the job and records the result. */
async function trainStep<S>(
  run: RlRun<S>,
  { step, batch, signal }: { readonly step: number; readonly batch: PreparedBatch; readonly signal: AbortSignal },
): Promise<void> {
  const { directory, options } = run;
  const { model, jobRetries = 0, orphanWaitMs = ORPHAN_WAIT_MS } = options;
  const startedMs = performance.now();
  const fresh = await recordRollouts(run, step, batch);
  const { groups, policyStep } = fresh;
  const baselineStep = newestCheckpointStep(directory.state) ?? 0;
  const settings = settingsOf(options, step);
  // Preflight and every request of the job share this conversion.
  const wireGroups = groups.map((group) => group.toJSON());
  // If the job was requested before a crash, its batch has already passed preflight.
  const isRequested = directory.state.openJob?.step === step;
  const findings = isRequested ? [] : runPreflight(wireGroups, settings);
  if (findings.some(isFatal)) return skipStep(run, step, { batch, fresh, findings });
  for (const { code, count, message } of findings) await directory.record({ type: "warning", step, code, count, message });
  for (const warning of toolErrorWarnings(groups)) await directory.record({ type: "warning", step, code: "tool-errors", ...warning });
  const hasReport = hasTokenReport(options, step);
  const send = jobRequest(model, wireGroups, { ...settings, ...(hasReport ? { tokenReport: true } : {}) });
  const outcome = await awaitJob({ directory, model, step, baselineStep, jobRetries, orphanWaitMs, send, signal });
  if (hasReport && outcome.jobId !== null)
    await keepTokenReport(directory, model, { step, jobId: outcome.jobId, groups, sampled: batch.sampled, signal });
  const trainSeconds = (performance.now() - startedMs) / 1000;
  const times = { "time/train_seconds": trainSeconds, "time/step_seconds": batch.seconds + trainSeconds };
  const metrics = { ...fresh.metrics, ...jobMetrics(outcome.metrics), skipped: 0, ...times };
  await directory.record({ type: "step-end", step, policyStep, checkpointStep: outcome.checkpointStep, metrics });
  await deletePlans(model, batch.sampled);
  await warnOfTinyUpdates(run, step, signal);
}

/**
 * Returns the function that requests the job of a step. Rollouts that workers have delivered are named instead of sent, unless the service
 * has deleted them.
 */
function jobRequest(model: Model, groups: WireTrajectoryGroup[], settings: RlOptions): JobStep["send"] {
  return async (idempotencyKey, signal) => {
    const request = { ...settings, idempotencyKey, signal };
    try {
      return await model.trainExamined(withReferences(groups), request);
    } catch (error) {
      if (!isMissingRollout(error)) throw error;
      return model.trainExamined(groups, request);
    }
  };
}

/**
 * Ends a step whose batch has nothing to learn, without a job.
 *
 * @throws PreflightError `E_PREFLIGHT` if the run has skipped all of its steps, at least `maxSkippedSteps`.
 */
async function skipStep<S>(
  { directory, options: { model, maxSkippedSteps = MAX_SKIPPED_STEPS } }: RlRun<S>,
  step: number,
  { batch, fresh, findings }: { readonly batch: PreparedBatch; readonly fresh: FreshBatch; readonly findings: Finding[] },
): Promise<void> {
  const fatalMessages = findings.filter(isFatal).map(({ message }) => message);
  await directory.record({ type: "step-skip", step, message: discardMessage(batch) ?? fatalMessages.join(" ") });
  const metrics = { ...fresh.metrics, skipped: 1, "time/step_seconds": batch.seconds };
  const checkpointStep = newestCheckpointStep(directory.state) ?? 0;
  const { steps } = await directory.record({ type: "step-end", step, policyStep: fresh.policyStep, checkpointStep, metrics });
  await deletePlans(model, batch.sampled);
  if (isExhausted(steps, maxSkippedSteps) && steps.every(isSkipped)) throw new PreflightError(findings);
}

/** Records a warning if the reward has not moved and the learning rate is far below the model's default. Checks every ten steps. */
async function warnOfTinyUpdates<S>({ directory, options: { model } }: RlRun<S>, step: number, signal: AbortSignal): Promise<void> {
  const { steps } = directory.state;
  if ((step + 1) % STALL_STEPS !== 0 || !isStalled(steps)) return;
  const rate = steps.at(-1)?.metrics["learning_rate"];
  // A warning must not end the run.
  const defaultRate = await defaultRateOf(model, "rl", signal).catch(() => null);
  if (rate === undefined || defaultRate === null || rate >= TINY_RATE * defaultRate.rate) return;
  const message = `The reward has not moved in ${STALL_STEPS} steps, and the learning rate ${rate} makes tiny updates. Set \`train.learningRate\` near ${defaultRate.rate}, the ${defaultRate.reason}.`;
  await directory.record({ type: "warning", step, code: "tiny-updates", count: 1, message });
}

/** Batch without its stale groups, which are older than `maxStepsOffPolicy`, and the metrics of its rollouts. */
interface FreshBatch {
  readonly groups: readonly TrajectoryGroup[];
  /** Newest checkpoint that a group was sampled from. */
  readonly policyStep: number;
  readonly metrics: Metrics;
}

/** Computes the metrics of a batch's rollouts, records `rollouts-end`, and returns the batch without its stale groups. */
async function recordRollouts<S>({ directory, options }: RlRun<S>, step: number, batch: PreparedBatch): Promise<FreshBatch> {
  const { maxStepsOffPolicy = 0 } = options;
  const { sampled, kept, seconds } = batch;
  const groups = kept.filter((group) => ageOf(group, step) <= maxStepsOffPolicy);
  const staleGroups = kept.length - groups.length;
  const ages = sampled.map((group) => ageOf(group, step));
  const metrics: Metrics = {
    ...rolloutMetrics(sampled),
    ...environmentMetrics(sampled),
    ...batchMetrics(batch, options),
    "off_policy/steps_mean": ages.reduce((sum, age) => sum + age, 0) / ages.length,
    "off_policy/steps_max": Math.max(...ages),
    "off_policy/stale_groups": staleGroups,
    "time/rollouts_seconds": seconds,
  };
  const exceptions = sampled.reduce((sum, group) => sum + group.exceptions.length, 0);
  const rewardMean = metrics["reward/mean"] ?? null;
  await directory.record({ type: "rollouts-end", step, groups: sampled.length, staleGroups, exceptions, rewardMean });
  const policyStep = Math.max(...sampled.map((group) => Number(group.metadata["checkpoint_step"])));
  return { groups, policyStep, metrics };
}

/**
 * Runs preflight on a batch and returns its findings.
 *
 * @throws PreflightError `E_PREFLIGHT` for a broken batch. A batch with nothing to learn is not an error.
 */
function runPreflight(groups: readonly WireTrajectoryGroup[], settings: RlOptions): Finding[] {
  const findings = preflight(groups, examinationOf(settings));
  if (findings.some((each) => isFatal(each) && !isNothingToLearn(each))) throw new PreflightError(findings);
  return findings;
}

/** Returns the settings of a step's job. In a run on several environments, advantages are normalized per environment by default. */
function settingsOf<S>({ model, environment, train = {} }: TrainRlOptions<S>, step: number): RlOptions {
  const settings = typeof train === "function" ? train(step) : train;
  const isScoped = weightedEnvironments(environment).length > 1 && settings.lossReduction !== "constant";
  // Only services of this package are known to support idempotency keys; other services do not know the setting.
  return isScoped && model.service.features.idempotencyKeys === true ? { advantageScope: "environment", ...settings } : settings;
}

/** Whether the job of a step stores a token report: only on services that are known to support the extension. */
function hasTokenReport<S>({ model, tokenReportEvery = 10, steps }: TrainRlOptions<S>, step: number): boolean {
  const isDue = tokenReportEvery > 0 && (step % tokenReportEvery === 0 || step === steps - 1);
  return isDue && model.service.features.idempotencyKeys === true;
}

/** Whether a finding forbids the job. */
function isFatal({ severity }: Finding): boolean {
  return severity === "fatal";
}

/** Whether a finding means only that nothing can be learned: normal at the start and end of training, and not a failure. */
function isNothingToLearn({ code }: Finding): boolean {
  return code === "nothing-to-learn" || code === "no-groups" || code === "only-truncated";
}

/** Whether each of the last `count` steps was skipped. */
function isExhausted(steps: readonly CompletedStep[], count: number): boolean {
  return steps.length >= count && steps.slice(-count).every(isSkipped);
}

/** Whether a step ended without a job. */
function isSkipped({ metrics }: CompletedStep): boolean {
  return metrics["skipped"] === 1;
}
