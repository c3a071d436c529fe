/** Interface of trackers, the destinations of a run's metrics and rollouts. `tracker-feed.ts` calls them. */
import type { TrajectoryGroup } from "../../base/trajectory/index.ts";
import type { Split } from "../../run/data.ts";
import type { Metrics, RecordedEvent } from "../../run/events.ts";

/** Run whose events a {@link Tracker} receives. */
export interface TrackedRun {
  /** Id of the run, 32 hexadecimal digits; the same after a resume. */
  readonly id: string;
  /** Name of the run: the last component of `runDir`. */
  readonly name: string;
  /** Absolute path of the run directory. */
  readonly runDir: string;
  /** Content of `config.json`. */
  readonly config: Readonly<Record<string, unknown>>;
  /**
   * Reads the recorded events up to a line of `events.jsonl`, for trackers that write their output anew.
   *
   * @param lastSeq - `seq` of the last event to read.
   * @returns the events, oldest first.
   */
  readonly events: (lastSeq: number) => AsyncIterable<TrackedEvent>;
  /**
   * Reads the groups of a finished step or evaluation.
   *
   * @param split - Purpose of the rollouts.
   * @param step - Step of the run; for `eval`, the number of steps completed before the evaluation.
   * @returns the groups, ordered by scenario index.
   */
  readonly groups: (split: Split, step: number) => Promise<TrajectoryGroup[]>;
}

/** Recorded event of a run, with the metrics that a tracker plots. */
export interface TrackedEvent {
  /** Event as recorded in `events.jsonl`. */
  readonly event: RecordedEvent;
  /**
   * Position of the metrics on the x axis: the step of a `step-end` or `evaluation-end` event; for a `gradient-step` of a supervised run,
   * the number of earlier gradient steps of the run. 0 without metrics.
   */
  readonly step: number;
  /** Metrics of the event; empty for most events. Names of a gradient step's metrics start with `gradient/`. */
  readonly metrics: Metrics;
}

/** Open connection of a tracker to a run. */
export interface TrackerSession {
  /**
   * Stores events. If the call throws, the same events are delivered again, so that a partial delivery must not store an event twice.
   *
   * @param events - Events in the order of the run, at least one.
   * @param signal - Aborts a delivery that takes too long.
   * @returns JSON value that the next {@link Tracker.open} receives. Saved together with the position in the run.
   */
  readonly log: (events: readonly TrackedEvent[], signal: AbortSignal) => Promise<unknown>;
  /** Releases files and connections; called once, after the last {@link TrackerSession.log}. */
  readonly close: () => Promise<void>;
}

/**
 * Destination for the metrics and rollouts of a run, such as TensorBoard files or an MLflow server. Pass trackers as option `trackers` of
 * `trainRl`, `trainSft` or `trainPreferences`.
 *
 * A tracker is fed from the recorded events of the run directory, which also keeps its position: after a resume it receives the events
 * that it has not confirmed. A failing tracker does not stop the run.
 *
 * @example
 * ```ts
 * import { appendFile } from "node:fs/promises";
 * import type { Tracker } from "whetstone/train";
 *
 * export const rewards: Tracker = {
 *   name: "rewards",
 *   open: async (run) => ({
 *     async log(events) {
 *       for (const { step, metrics } of events) {
 *         if (metrics["reward/mean"] !== undefined) await appendFile(`${run.runDir}/rewards.txt`, `${step} ${metrics["reward/mean"]}\n`);
 *       }
 *       return null;
 *     },
 *     close: async () => {},
 *   }),
 * };
 * ```
 */
export interface Tracker {
  /** Name, unique among the trackers of a run: letters, digits, `-`, `_` and `.`. Part of the name of the file with the position. */
  readonly name: string;
  /**
   * Connects to a run, at the first event of each start of the run.
   *
   * @param run - Run to track.
   * @param state - Value that the newest confirmed {@link TrackerSession.log} returned; null at the first start.
   * @param signal - Aborts a call that takes too long.
   * @returns the open connection.
   */
  readonly open: (run: TrackedRun, state: unknown, signal: AbortSignal) => Promise<TrackerSession>;
}
