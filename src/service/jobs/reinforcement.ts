/**
 * Trainer of reinforcement jobs of the fine-tuning interface: RL steps on rollouts that the job samples and grades itself. The trainer of
 * RL jobs, which get their rollouts from clients, is `rl.ts`; its `trainBatch` trains the steps here, too.
 */
import { rlBatchSteps, shuffledIndices, trainingWarnings, WARNING_HISTORY } from "../../learner/index.ts";
import type { PolicyVersion } from "../../engine/port.ts";
import type { Trajectory, TrajectoryGroup } from "../../base/schema/index.ts";
import { EngineError } from "../../base/errors.ts";
import { isChoice } from "../../base/trajectory/messages.ts";
import { runStepsInSlices } from "../../base/util/steps.ts";
import { itemAt } from "../../base/util/values.ts";
import { logFailure } from "../common/logger.ts";
import { stepName } from "../common/names.ts";
import { getArtifact } from "../store/artifacts.ts";
import { recentSteps } from "../store/fine-tuning-jobs.ts";
import type { ReinforcementJobConfig } from "../store/job-configs.ts";
import { readReinforcementRows, type ReinforcementRow } from "../training-data/reinforcement-data.ts";
import { fineTuningResults } from "./fine-tuning-results.ts";
import type { JobChat } from "./job-chat.ts";
import { knownMetrics } from "./metrics.ts";
import { JobPaused } from "./pause.ts";
import { trainBatch } from "./rl.ts";
import { playRollouts, sampleSeed, type GradedRollout, type PlannedSample } from "./rollouts.ts";
import type { JobScope } from "./run-job.ts";
import type { Trained } from "./states.ts";

/** Settings and files of a running job. */
interface ReinforcementInputs {
  readonly config: ReinforcementJobConfig;
  readonly chat: JobChat;
  readonly rows: readonly ReinforcementRow[];
  /** Rows of the validation file; empty without one. */
  readonly validation: readonly ReinforcementRow[];
  /** Optimizer steps of the job. */
  readonly steps: number;
}

/** Graded rollouts of a step. */
interface StepRollouts {
  /** Groups of the rows, in the order of the step. */
  readonly groups: readonly TrajectoryGroup[];
  /** Number of rollouts that the grader could not score. */
  readonly failures: number;
}

/** Trains the uncommitted steps of a job. The rollouts of each step are sampled with the weights after the step before it. */
export async function runReinforcementSteps(scope: JobScope): Promise<Trained> {
  const { job, signal, emit } = scope;
  const inputs = await readInputs(scope);
  const { steps, config, rows, validation } = inputs;
  const results = fineTuningResults(scope, config.fine_tuning);
  const counts = validation.length === 0 ? {} : { num_validation_trajectories: validation.length };
  await emit({ key: "start", type: "training_started", data: { num_sequences: steps, num_rows: rows.length, ...counts } });
  let completed = job.committed_steps;
  // An earlier attempt may have been interrupted between the commit of this step and its checkpoint.
  await results.afterCommit(completed);
  let metrics: Readonly<Record<string, number>> = {};
  while (completed < steps) {
    signal.throwIfAborted();
    completed++;
    metrics = await runStep(scope, inputs, completed);
    await emit({ key: `step:${completed}`, type: "gradient_step", data: metrics });
    await emitWarnings(scope, metrics, completed);
    // `commitCheckpoint` of `states.ts` commits the last step together with the end of the job.
    if (completed === steps) break;
    const isPausing = scope.isPausing();
    await scope.commitProgress(completed);
    await results.afterCommit(completed);
    if (isPausing) throw new JobPaused(completed);
  }
  return { metrics: { ...metrics, num_gradient_steps: steps }, ...results.atEnd(steps) };
}

/** Samples, grades and trains a step, and validates after every `eval_interval` steps and the last one. `number` counts from 1. */
async function runStep(scope: JobScope, inputs: ReinforcementInputs, number: number): Promise<Readonly<Record<string, number>>> {
  const { steps, config, validation } = inputs;
  const rollouts = await withWeights(scope, (model) => sampleStep(scope, inputs, { model, number }));
  const trainingMetrics = await trainStep(scope, inputs, { rollouts, number });
  const isValidationDue = validation.length > 0 && (number % config.reinforcement.eval_interval === 0 || number === steps);
  const validationMetrics = isValidationDue ? await withWeights(scope, (model) => validate(scope, inputs, { model, number })) : {};
  return knownMetrics({ gradient_step: number, ...trainingMetrics, ...validationMetrics });
}

/** Emits the warnings about a step. They depend on its metrics and on the metrics of up to {@link WARNING_HISTORY} steps before it. */
async function emitWarnings({ context, job, emit }: JobScope, metrics: Readonly<Record<string, number>>, number: number): Promise<void> {
  const recentMetrics = (await recentSteps(context.store, job.id)).map(({ data }) => JSON.parse(data) as Readonly<Record<string, number>>);
  const earlierSteps = recentMetrics.filter((each) => (each["gradient_step"] ?? 0) < number).slice(0, WARNING_HISTORY);
  for (const warning of trainingWarnings(metrics, earlierSteps))
    await emit({ key: `warning:${number}:${warning.code}`, type: "warning", data: { ...warning } });
}

/** Reads the settings and files of a job. */
async function readInputs({ context, job, signal }: JobScope): Promise<ReinforcementInputs> {
  const { store, files, chat } = context;
  const config = JSON.parse(job.config) as ReinforcementJobConfig;
  const { epochs, batch_size: batchSize } = config.reinforcement;
  const read = async (id: string, param: string) => readReinforcementRows(await getArtifact(store, id), { files, param, signal });
  const rows = await read(config.artifact_id, "training_file");
  const { validation_artifact_id: id } = config;
  return {
    config,
    chat: (await chat)({ entity: config.reinforcement.visible_entity ?? null, modelId: null }),
    rows,
    validation: id === undefined ? [] : await read(id, "validation_file"),
    steps: epochs * Math.ceil(rows.length / batchSize),
  };
}

/** Publishes the current weights for the time of `use`, which gets their name for requests. A failure to release them is only logged. */
async function withWeights<T>(scope: JobScope, use: (name: string) => Promise<T>): Promise<T> {
  const { context, job, handle, model, checkpoint, signal } = scope;
  const { engine, policies, logger } = context;
  const policy: PolicyVersion = await engine.publish(handle, { signal });
  const lent = policies.lend(policy, stepName(model, checkpoint.step));
  try {
    return await use(lent.name);
  } finally {
    lent.end();
    await engine.release(policy).catch(logFailure(logger, "The weights of rollouts could not be released", { job: job.id }));
  }
}

/** Samples and grades the groups of a step, one group per row of its batch. The job's seed shuffles the rows anew for each epoch. */
async function sampleStep(
  scope: JobScope,
  inputs: ReinforcementInputs,
  { model, number }: { readonly model: string; readonly number: number },
): Promise<StepRollouts> {
  const { group_size: groupSize, seed } = inputs.config.reinforcement;
  const stepIndex = number - 1;
  const rowIndices = rowsOfStep(inputs, stepIndex);
  const plans = rowIndices.flatMap((index): PlannedSample[] => {
    const row = itemAt(inputs.rows, index);
    return Array.from({ length: groupSize }, (_, sample) => ({ row, seed: sampleSeed(seed, ["train", stepIndex, index, sample]) }));
  });
  const rollouts = await play(scope, inputs, { model, plans });
  const failures = await reportFailures(scope, rollouts, { key: `grader:${number}`, what: `step ${number}` });
  // The rollouts have the order of the plans: `groupSize` per row.
  const groups = rowIndices.map((index, position) => groupOf(index, rollouts.slice(position * groupSize, (position + 1) * groupSize)));
  return { groups, failures };
}

/** Returns the indices of the rows in the batch of a step. `stepIndex` counts from 0 over all epochs. */
function rowsOfStep({ rows, config }: ReinforcementInputs, stepIndex: number): number[] {
  const { batch_size: batchSize, seed } = config.reinforcement;
  const stepsPerEpoch = Math.ceil(rows.length / batchSize);
  const epoch = Math.floor(stepIndex / stepsPerEpoch);
  const order = shuffledIndices(rows.length, BigInt(seed), epoch);
  const start = (stepIndex % stepsPerEpoch) * batchSize;
  return order.slice(start, start + batchSize);
}

/** Returns the rollouts of a row as a group: the scored ones as trajectories, the others as exceptions. */
function groupOf(row: number, rollouts: readonly GradedRollout[]): TrajectoryGroup {
  const exceptions = rollouts.flatMap(({ failure }) =>
    failure === null ? [] : [{ type: failure.name, message: failure.message, traceback: "" }],
  );
  return { trajectories: scoredTrajectories(rollouts), exceptions, metadata: { row }, metrics: {}, logs: [] };
}

/** Samples and grades rollouts with the weights named `model`. */
function play(
  { context, checkpoint, signal }: JobScope,
  { chat, config }: ReinforcementInputs,
  { model, plans }: { readonly model: string; readonly plans: readonly PlannedSample[] },
): Promise<GradedRollout[]> {
  const { grader, request } = config.reinforcement;
  return playRollouts({ chat, model, step: checkpoint.step, grader, similarity: context.graders.similarity, request, signal }, plans);
}

/** Returns the trajectories of the rollouts that have a reward. */
function scoredTrajectories(rollouts: readonly GradedRollout[]): Trajectory[] {
  return rollouts.flatMap(({ trajectory, failure }) => (failure === null ? [trajectory] : []));
}

/**
 * Emits a warning if rollouts have no reward. `what` says in the message what the rollouts are for, such as "step 3".
 *
 * @returns the number of rollouts without a reward.
 * @throws EngineError `E_ENGINE` if no rollout has one.
 */
async function reportFailures(
  { emit }: JobScope,
  rollouts: readonly GradedRollout[],
  { key, what }: { readonly key: string; readonly what: string },
): Promise<number> {
  const failures = rollouts.flatMap(({ failure }) => (failure === null ? [] : [failure]));
  const [cause] = failures;
  if (cause === undefined) return 0;
  const message = `The grader scored ${rollouts.length - failures.length} of ${rollouts.length} rollouts of ${what}. First error: ${cause.message}`;
  if (failures.length === rollouts.length) throw new EngineError(message, { cause });
  await emit({ key, type: "note", data: { message, level: "warn", failures: failures.length } });
  return failures.length;
}

/**
 * Trains a step on its groups. Without a group with different rewards there is no gradient, and the weights stay as they are.
 *
 * @param step - `rollouts`: at least one of them has a reward, as {@link sampleStep} throws otherwise. `number`: counts from 1.
 */
async function trainStep(
  scope: JobScope,
  { config }: ReinforcementInputs,
  { rollouts, number }: { readonly rollouts: StepRollouts; readonly number: number },
): Promise<Readonly<Record<string, number>>> {
  const { base, signal } = scope;
  const groups = rollouts.groups.filter(({ trajectories }) => trajectories.length > 0);
  const failureMetrics = rollouts.failures === 0 ? {} : { "grader/failures": rollouts.failures };
  const rewards = groups.flatMap(({ trajectories }) => trajectories.map(({ reward }) => reward));
  const tokens = groups.flatMap(({ trajectories }) => trajectories.map(completionTokens));
  const rolloutMetrics = { "rollout/completion_tokens": mean(tokens), ...failureMetrics };
  const hasSignal = groups.some(({ trajectories }) => new Set(trajectories.map(({ reward }) => reward)).size > 1);
  if (!hasSignal)
    return {
      "reward/mean": mean(rewards),
      "reward/std": 0,
      "advantage/zero_groups": groups.length,
      "data/groups": groups.length,
      "data/trajectories": rewards.length,
      loss: 0,
      grad_norm: 0,
      num_tokens: 0,
      num_trainable_tokens: 0,
      ...rolloutMetrics,
    };
  const batch = await runStepsInSlices(rlBatchSteps(groups, config.experimental_config, base), { signal });
  const { metrics } = await trainBatch(scope, batch, `Step ${number}`);
  return { ...metrics, ...rolloutMetrics };
}

/** Returns the mean reward of the validation rows with the current weights. The samples of every validation have the same seeds. */
async function validate(
  scope: JobScope,
  inputs: ReinforcementInputs,
  { model, number }: { readonly model: string; readonly number: number },
): Promise<Readonly<Record<string, number>>> {
  const { eval_samples: samples, seed } = inputs.config.reinforcement;
  const plans = inputs.validation.flatMap((row, index): PlannedSample[] =>
    Array.from({ length: samples }, (_, sample) => ({ row, seed: sampleSeed(seed, ["validation", index, sample]) })),
  );
  const rollouts = await play(scope, inputs, { model, plans });
  await reportFailures(scope, rollouts, { key: `grader:validation:${number}`, what: `the validation after step ${number}` });
  return { "validation/reward": mean(scoredTrajectories(rollouts).map(({ reward }) => reward)), "validation/rollouts": plans.length };
}

/** Returns the number of sampled tokens of a trajectory. */
function completionTokens({ messages_and_choices: items }: Trajectory): number {
  return items.reduce((sum, item) => sum + (isChoice(item) ? (item.token_ids?.length ?? 0) : 0), 0);
}

/** Returns the mean; NaN without values. */
function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
