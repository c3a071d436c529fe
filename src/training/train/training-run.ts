/** Started run, of every kind: its directory, events, display, trackers and report around the loop of its steps. */
import type { Observable } from "rxjs";
import { WhetstoneError } from "../../base/errors.ts";
import type { Model } from "../../library/client/index.ts";
import { iterate } from "../../library/follow/rx.ts";
import { rxjs } from "../../library/follow/rxjs.ts";
import type { RunEvent } from "../../run/events.ts";
import { RunDisplay } from "./progress.ts";
import { resultOf, type RunLoop, type RunResult } from "./loop.ts";
import type { RunOptions } from "./options.ts";
import { RunDirectory, type RunConfig } from "../../run/run-directory.ts";
import { settingChanges } from "./setting-changes.ts";
import { newestCheckpointStep, type ResumeState } from "../../run/resume-state.ts";
import { feedTrackers, type TrackerFeeds } from "./tracker-feed.ts";
import { messageOf } from "../../base/util/values.ts";

/** Definition of a run: RL, SFT, or the evaluation of checkpoints. */
export interface RunKind {
  /** Settings written to the run directory. */
  readonly config: RunConfig;
  /** Steps of the whole run. */
  readonly count: number;
  /** Lines about the settings to print at the start. @default none */
  readonly notes?: readonly string[] | undefined;
  /** Returns the number of checkpoints to evaluate, and of those already evaluated. Absent for a run of training steps. */
  readonly checkpoints?: (state: ResumeState) => { readonly count: number; readonly completed: number };
  /** Creates the loop that runs the steps. */
  readonly loop: (directory: RunDirectory) => Pick<RunLoop<unknown>, "run" | "stop">;
}

/**
 * A started training run, made by `trainRl` or `trainSft`. The run proceeds with or without subscribers and records its progress in
 * `runDir`. If the run is interrupted, start it again with the same directory and it resumes.
 *
 * @example
 * ```ts
 * import { trainRl } from "whetstone/train";
 *
 * const run = trainRl({ model, environment, steps: 20, runDir: "runs/sums" });
 * for await (const event of run) {
 *   if (event.type !== "step-end") continue;
 *   console.log(event.step, event.metrics["reward/mean"]);
 *   if ((event.metrics["reward/mean"] ?? 0) > 0.99) void run.stop();
 * }
 * const { reason, checkpointStep } = await run.done;
 * ```
 */
export class TrainingRun implements AsyncIterable<RunEvent> {
  /** Directory of the run's records. */
  readonly runDir: string;
  /**
   * All events from the first on, including events of earlier starts, followed by live events. Completes or fails with the run.
   * Subscribing does not start the run, and unsubscribing does not stop it.
   */
  readonly events$: Observable<RunEvent>;
  readonly #directory: Promise<RunDirectory>;
  readonly #done: Promise<RunResult>;
  /** Loop of the steps; undefined before it starts. */
  #loop: Pick<RunLoop<unknown>, "stop"> | undefined;
  /** Whether {@link stop} was called, perhaps before the loop has started. */
  #isStopping = false;
  /** Whether the caller can learn of a failure, by `done` or `events$`. */
  #isObserved = false;

  /**
   * Starts a run; users call `trainRl` or `trainSft`.
   *
   * @internal
   */
  constructor(kind: Promise<RunKind>, options: RunOptions) {
    const { concat, defer, EMPTY, from, mergeMap } = rxjs();
    this.runDir = options.runDir;
    this.#directory = kind.then(({ config }) => RunDirectory.open(options.runDir, config));
    this.#done = this.#run(kind, options);
    this.events$ = defer(() => {
      this.#isObserved = true;
      const end = from(this.#done).pipe(mergeMap(() => EMPTY));
      return concat(from(this.#directory).pipe(mergeMap((directory) => directory.events())), end);
    });
    // An unobserved failure ends the process, as any rejected promise does. A failure observed through events or `done` must not.
    this.#done.catch((error: unknown) => {
      if (!this.#isObserved) void Promise.reject(error as Error);
    });
  }

  /**
   * Result of the run.
   *
   * @throws the signal's reason, if it aborts.
   * @throws ConfigError `E_CONFIG` if `runDir` holds another run, ConflictError `E_CONFLICT` if `runDir` is in use.
   * @throws JobFailedError `E_JOB_FAILED`, TooManyExceptionsError `E_TOO_MANY_EXCEPTIONS`, PreflightError `E_PREFLIGHT`, or any other error
   *   that ended the run.
   */
  get done(): Promise<RunResult> {
    this.#isObserved = true;
    return this.#done;
  }

  /**
   * Stops after the current step. To stop immediately, abort the run's signal.
   *
   * @returns Result of the run.
   * @throws JobFailedError `E_JOB_FAILED` or any other error that ended the run, see {@link TrainingRun.done}.
   */
  stop(): Promise<RunResult> {
    this.#isStopping = true;
    this.#loop?.stop();
    return this.done;
  }

  /**
   * Iterates over {@link events$}; leaving the loop does not stop the run.
   *
   * @returns the events from the first on; throws the error that ended the run.
   */
  [Symbol.asyncIterator](): AsyncIterator<RunEvent> {
    return iterate(this.events$)[Symbol.asyncIterator]();
  }

  /** Opens the directory and runs in it. */
  async #run(preparation: Promise<RunKind>, options: RunOptions): Promise<RunResult> {
    const kind = await preparation;
    const directory = await this.#directory;
    try {
      return await this.#runIn(directory, kind, options);
    } finally {
      await directory.close();
    }
  }

  /** Runs the loop, with a display, trackers and a report. Records the start and the end of the run. */
  async #runIn(directory: RunDirectory, kind: RunKind, options: RunOptions): Promise<RunResult> {
    const { model, signal = new AbortController().signal, report = true } = options;
    const { count, completed } = kind.checkpoints?.(directory.state) ?? { count: kind.count, completed: directory.state.steps.length };
    const unit = kind.checkpoints === undefined ? "steps" : "checkpoints";
    const display = new RunDisplay({ runDir: this.runDir, count, completed, unit, state: directory.state }, options.progress);
    const subscription = directory.live$.subscribe((event) => display.update(event));
    for (const note of kind.notes ?? []) display.note(note);
    let failure: "stopped" | "ended by an error" | undefined;
    let feeds: TrackerFeeds | undefined;
    try {
      feeds = await feedTrackers(directory, options.trackers ?? []);
      signal.throwIfAborted();
      const { end, plannedSteps } = directory.state;
      // The run has ended early and no more steps are requested than before: return the recorded result.
      if (end !== null && kind.count <= plannedSteps) return resultOf(directory, end);
      await recordStart(directory, kind, model, signal);
      const loop = kind.loop(directory);
      this.#loop = loop;
      if (this.#isStopping) loop.stop();
      const result = await loop.run(signal);
      await directory.record({ type: "run-end", reason: result.reason, steps: result.steps, checkpointStep: result.checkpointStep });
      return result;
    } catch (error) {
      failure = signal.aborted ? "stopped" : "ended by an error";
      const code = WhetstoneError.isInstance(error) ? error.code : null;
      // An abort is the caller's decision, not a failure: the records stay as after a crash, and the run can be resumed. On a full disk the
      // error cannot be recorded; the caller gets it all the same.
      if (!signal.aborted) await directory.record({ type: "run-fail", code, message: messageOf(error) }).catch(() => undefined);
      throw error;
    } finally {
      if (report) await this.#report(directory, display);
      await feeds?.finish();
      subscription.unsubscribe();
      display.end(failure);
    }
  }

  /** Writes the report. A failure is recorded as a warning, or printed if it cannot be recorded, because it must not fail the run. */
  async #report(directory: RunDirectory, display: RunDisplay): Promise<void> {
    try {
      // Imported lazily so that scripts do not load the page and its charts at startup.
      const { writeReport } = await import("../../lab/report/index.ts");
      await writeReport(directory.path);
    } catch (error) {
      const message = messageOf(error);
      await directory
        .record({ type: "warning", step: directory.state.steps.length, code: "report", count: 1, message })
        .catch(() => display.note(`warning report: ${message}`));
    }
  }
}

/** Records the first start of a run, or a resume with the changes of its settings. */
async function recordStart(directory: RunDirectory, { config, count }: RunKind, model: Model, signal: AbortSignal): Promise<void> {
  const { state } = directory;
  // As JSON, so that an absent member equals one that is undefined.
  const settings = JSON.parse(JSON.stringify(config.free)) as Readonly<Record<string, unknown>>;
  const recordedCheckpoint = newestCheckpointStep(state);
  if (recordedCheckpoint === null) {
    const started = { kind: config.kind, modelId: model.id, checkpointStep: await model.step({ signal }) };
    await directory.record({ type: "run-start", ...started, steps: count, settings });
    return;
  }
  const resumed = { step: state.steps.length, checkpointStep: recordedCheckpoint };
  const changes = settingChanges(state.settings ?? {}, settings);
  await directory.record({ type: "run-resume", ...resumed, steps: count, settings, changes });
}
