/** Loop of a training run: prepares and trains the steps in order, evaluates, deletes what is not kept, and decides when the run ends. */
import { abortable, linkAbort, type LinkedAbort } from "../../base/util/abort.ts";
import { deferred } from "../../base/util/deferred.ts";
import { Holds } from "../../base/util/leases.ts";
import { pushIterator, type PushIterator } from "../../base/util/push-iterator.ts";
import type { Metrics, RunEndReason } from "../../run/events.ts";
import { checkpointsToDelete } from "./retention.ts";
import type { RunOptions } from "./options.ts";
import type { RunDirectory } from "../../run/run-directory.ts";
import { newestCheckpointStep } from "../../run/resume-state.ts";

/** Context of {@link StepPlan.prepare}. */
export interface PrepareContext {
  /** Number of completed steps at `checkpointStep`. */
  readonly policyVersion: number;
  /** Checkpoint to sample from; protected from deletion until the step is prepared. */
  readonly checkpointStep: number;
  /** Aborts the run. */
  readonly signal: AbortSignal;
  /** Aborts if the run ends before this step. Preparation should then return; finished parts are kept. */
  readonly stopSignal: AbortSignal;
}

/** Implementation of the steps of one kind of run. `P` is the training input of a step. */
export interface StepPlan<P> {
  /** Steps of the whole run. */
  readonly count: number;
  /** Max steps that preparation may be ahead of training. */
  readonly maxAhead: number;
  /**
   * Whether each step is prepared from exactly the checkpoint `maxAhead` steps back, even if a newer checkpoint exists. The run is then a
   * function of its settings. @default false
   */
  readonly isLagExact?: boolean | undefined;
  /** Returns the training input of a step; null if `stopSignal` ended the preparation. */
  readonly prepare: (step: number, context: PrepareContext) => Promise<P | null>;
  /** Trains a step and records `step-end`. */
  readonly train: (step: number, prepared: P, signal: AbortSignal) => Promise<void>;
  /** Whether nothing is left to learn; called after each step. @default never */
  readonly isExhausted?: (() => boolean) | undefined;
  /** Evaluates the given checkpoint and records `evaluation-end`. */
  readonly evaluate: (completedSteps: number, checkpointStep: number, signal: AbortSignal) => Promise<void>;
}

/** Result of a training run. */
export interface RunResult {
  /** Reason for the end. */
  readonly reason: RunEndReason;
  /** Number of completed steps. */
  readonly steps: number;
  /** The model's newest checkpoint. */
  readonly checkpointStep: number;
  /** Metrics of the last step; empty if no step was completed. */
  readonly metrics: Metrics;
  /** Metrics of the last evaluation; null if there was none. */
  readonly evaluation: Metrics | null;
  /** Directory of the run. */
  readonly runDir: string;
}

/** Builds the result of a run from its recorded state. */
export function resultOf({ state, path }: RunDirectory, reason: RunEndReason): RunResult {
  const { steps, evaluations } = state;
  return {
    reason,
    steps: steps.length,
    checkpointStep: newestCheckpointStep(state) ?? 0,
    metrics: steps.at(-1)?.metrics ?? {},
    evaluation: evaluations.at(-1)?.metrics ?? null,
    runDir: path,
  };
}

/** Step with its training input. */
interface PreparedStep<P> {
  readonly step: number;
  readonly input: P;
}

/**
 * Scheduler of a run's steps: a producer prepares them in order, at most `maxAhead` steps ahead of training, and a consumer trains them in
 * order:
 *
 * ```
 * producer: wait until version ≥ step − maxAhead ─▶ prepare ─▶ queue
 * consumer: queue ─▶ train ─▶ version = step + 1 ─▶ evaluate, delete checkpoints
 * ```
 *
 * With `maxAhead` 0 the version is raised last, so that steps do not overlap and the run is a function of its settings.
 */
export class RunLoop<P> {
  readonly #directory: RunDirectory;
  readonly #options: RunOptions;
  readonly #plan: StepPlan<P>;
  /** Checkpoints that rollouts or an evaluation are sampling from; protected from deletion. */
  readonly #checkpointsInUse = new Holds<number>();
  /** Stop signals of the steps in preparation, by step. */
  readonly #preparing = new Map<number, AbortController>();
  /** Number of trained steps, from the first step of the run on. */
  #version: number;
  /** Resolves at the next change of `#version` or `#stopAfter`. */
  #changed = deferred<void>();
  /** Last step to train. */
  #stopAfter = Number.POSITIVE_INFINITY;
  /** Reason of an early end; null if the run ends after its last step, or by {@link stop}. */
  #endReason: RunEndReason | null = null;
  /** Deletion of checkpoints in the background; null if none is pending. */
  #deletion: Promise<void> | null = null;
  /** Signal of the caller, set by {@link run}. */
  #signal: AbortSignal = new AbortController().signal;
  /** Step that is being trained, evaluated or cleaned up after; null between steps. */
  #currentStep: number | null = null;

  constructor(directory: RunDirectory, options: RunOptions, plan: StepPlan<P>) {
    this.#directory = directory;
    this.#options = options;
    this.#plan = plan;
    this.#version = directory.state.steps.length;
  }

  /** Ends the run after the current step. */
  stop(): void {
    // Between two steps, the next one counts as current: it is being prepared.
    this.#stopAfter = Math.min(this.#stopAfter, this.#currentStep ?? this.#version);
    for (const [step, controller] of this.#preparing) if (step > this.#stopAfter) controller.abort();
    this.#notify();
  }

  /**
   * Runs the remaining steps. No work of the run is pending after the promise settles.
   *
   * @throws the signal's reason, or the error that ended the run.
   */
  async run(signal: AbortSignal): Promise<RunResult> {
    this.#signal = signal;
    const work = linkAbort(signal);
    try {
      await this.#evaluateIfDue(work.signal);
      await this.#prepareAndTrain(work);
      signal.throwIfAborted();
      await this.#deletion;
      await this.#deleteCheckpoints(signal);
    } catch (error) {
      // Aborted work may fail with an error of its own.
      signal.throwIfAborted();
      throw error;
    } finally {
      await this.#deletion;
      work.dispose();
    }
    const isComplete = this.#directory.state.steps.length >= this.#plan.count;
    return resultOf(this.#directory, this.#endReason ?? (isComplete ? "completed" : "stopped"));
  }

  /** Runs producer and consumer until both have ended. The first error aborts the other one. */
  async #prepareAndTrain(work: LinkedAbort): Promise<void> {
    const queue = pushIterator<PreparedStep<P>>(() => undefined);
    const fail = (error: unknown) => {
      work.abort(undefined);
      throw error;
    };
    const producer = this.#prepareSteps(queue, work.signal).catch(fail);
    const consumer = this.#trainSteps(queue, work.signal).catch(fail);
    try {
      await Promise.all([producer, consumer]);
    } finally {
      await Promise.allSettled([producer, consumer]);
    }
  }

  /** Producer: prepares the steps in order until the last one, `#stopAfter`, or an incomplete preparation. */
  async #prepareSteps(queue: PushIterator<PreparedStep<P>>, signal: AbortSignal): Promise<void> {
    const { count, maxAhead } = this.#plan;
    try {
      for (let step = this.#version; step < count; step++) {
        while (this.#version < step - maxAhead && step <= this.#stopAfter) await abortable(this.#changed.promise, signal);
        if (step > this.#stopAfter) return;
        const input = await this.#prepare(step, signal);
        if (input === null) return;
        queue.push({ step, input });
      }
    } finally {
      queue.end();
    }
  }

  /** Consumer: trains the prepared steps in order. */
  async #trainSteps(queue: PushIterator<PreparedStep<P>>, signal: AbortSignal): Promise<void> {
    for await (const { step, input } of queue) {
      signal.throwIfAborted();
      if (step > this.#stopAfter) return;
      await this.#complete(step, input, signal);
    }
  }

  /** Sets the number of trained steps, for which the producer may wait. */
  #raiseVersion(version: number): void {
    this.#version = version;
    this.#notify();
  }

  /** Wakes the producer. */
  #notify(): void {
    this.#changed.resolve();
    this.#changed = deferred();
  }

  /** Prepares a step and protects its checkpoint from deletion meanwhile. Null if the preparation was stopped. */
  async #prepare(step: number, signal: AbortSignal): Promise<P | null> {
    const controller = new AbortController();
    this.#preparing.set(step, controller);
    const { maxAhead, isLagExact = false } = this.#plan;
    const { steps } = this.#directory.state;
    const policyVersion = isLagExact ? Math.max(0, step - maxAhead) : steps.length;
    const checkpointStep = steps[policyVersion - 1]?.checkpointStep ?? this.#directory.state.startCheckpoint ?? 0;
    const release = this.#checkpointsInUse.hold(checkpointStep);
    try {
      return await this.#plan.prepare(step, { policyVersion, checkpointStep, signal, stopSignal: controller.signal });
    } finally {
      release();
      this.#preparing.delete(step);
    }
  }

  /** Trains a step, then evaluates, deletes what is not kept, and decides whether the run ends. */
  async #complete(step: number, input: P, signal: AbortSignal): Promise<void> {
    this.#currentStep = step;
    await this.#plan.train(step, input, signal);
    if (this.#plan.maxAhead > 0) this.#raiseVersion(step + 1);
    const evaluation = await this.#evaluateIfDue(signal);
    this.#deleteSoon();
    await this.#deleteTrajectories(step);
    const { metrics } = this.#directory.state.steps.at(-1) ?? { metrics: {} };
    if (this.#options.stopWhen?.({ step, metrics, evaluation }) === true) this.#endAfter(step, "early-stop");
    else if (this.#plan.isExhausted?.() === true) this.#endAfter(step, "nothing-to-learn");
    this.#currentStep = null;
    this.#raiseVersion(step + 1);
  }

  /** Ends the run after a step; steps in preparation are abandoned. */
  #endAfter(step: number, reason: RunEndReason): void {
    // After the last requested step, `nothing-to-learn` is reported as `completed`.
    if (step < this.#plan.count - 1 || reason === "early-stop") this.#endReason = reason;
    this.#stopAfter = Math.min(this.#stopAfter, step);
    for (const controller of this.#preparing.values()) controller.abort();
  }

  /** Evaluates the newest checkpoint if an evaluation is due, and returns its metrics; null if none is due. */
  async #evaluateIfDue(signal: AbortSignal): Promise<Metrics | null> {
    const { evaluation } = this.#options;
    const { steps, evaluations } = this.#directory.state;
    const completed = steps.length;
    if (evaluation === undefined) return null;
    const isDue = completed % (evaluation.every ?? 10) === 0 || completed === this.#plan.count;
    if (!isDue) return null;
    const recorded = evaluations.find(({ step }) => step === completed);
    if (recorded !== undefined) return recorded.metrics;
    const checkpointStep = this.#newestCheckpoint();
    const release = this.#checkpointsInUse.hold(checkpointStep);
    try {
      await this.#plan.evaluate(completed, checkpointStep, signal);
      return this.#directory.state.evaluations.at(-1)?.metrics ?? null;
    } finally {
      release();
    }
  }

  /** Deletes checkpoints in the background, one call at a time, so that no step waits. A failed deletion is retried after a later step. */
  #deleteSoon(): void {
    if (this.#deletion !== null) return;
    this.#deletion = this.#deleteCheckpoints(this.#signal)
      .catch(() => undefined)
      .finally(() => (this.#deletion = null));
  }

  /** Deletes the checkpoints that `keepCheckpoints` does not keep, and records the deletion. */
  async #deleteCheckpoints(signal: AbortSignal): Promise<void> {
    const { keepCheckpoints, model } = this.#options;
    if (keepCheckpoints === undefined) return;
    // With an exact lag, later steps will sample from older checkpoints that are not in use yet.
    const recent = Math.max(keepCheckpoints.recent, this.#plan.maxAhead + 1);
    const steps = checkpointsToDelete(this.#directory.state, { ...keepCheckpoints, recent }, new Set(this.#checkpointsInUse.keys()));
    if (steps.length === 0) return;
    await model.service.checkpoints.delete(model.id, steps, { signal });
    await this.#directory.record({ type: "checkpoints-delete", steps });
  }

  /** Deletes the rollouts of the previous step and of the previous evaluation, unless `keepTrajectories` keeps them. */
  async #deleteTrajectories(step: number): Promise<void> {
    const { keepTrajectories } = this.#options;
    if (keepTrajectories === undefined) return;
    const isKept = (number: number) => number % keepTrajectories.every === 0;
    if (step > 0 && !isKept(step - 1)) await this.#directory.removeGroups("train", step - 1);
    const previousEvaluation = this.#directory.state.evaluations.at(-2)?.step;
    if (previousEvaluation !== undefined && !isKept(previousEvaluation)) await this.#directory.removeGroups("eval", previousEvaluation);
  }

  /** Returns the step of the model's newest checkpoint. */
  #newestCheckpoint(): number {
    return newestCheckpointStep(this.#directory.state) ?? 0;
  }
}
