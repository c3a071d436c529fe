/** Retention of a run's checkpoints and rollouts: options, and the choice of the checkpoints to delete. */
import type { ResumeState } from "../../run/resume-state.ts";

/** Retention policy of a run's checkpoints. Step 0, the newest checkpoint and checkpoints in use (rollouts, evaluation) are always kept. */
export interface KeepCheckpoints {
  /** Number of newest checkpoints to keep, at least 1. */
  readonly recent: number;
  /**
   * Number of best checkpoints to keep by a metric of the run; `mode` defaults to `max`. A training metric scores the checkpoint that was
   * sampled from, an `eval/…` metric the checkpoint that was evaluated.
   */
  readonly best?:
    | {
        /** Name of the metric. */
        readonly metric: string;
        /** Number of checkpoints to keep, at least 1. */
        readonly count: number;
        /** Whether the highest or the lowest values are best. @default "max" */
        readonly mode?: "max" | "min" | undefined;
      }
    | undefined;
  /** Checkpoint steps that are never deleted. @default [] */
  readonly pinned?: readonly number[] | undefined;
}

/**
 * Retention policy of a run's rollouts: the files of the other steps in `trajectories/` are deleted after the next step. The newest step
 * and the newest evaluation are always kept. Metrics and events of all steps are kept.
 */
export interface KeepTrajectories {
  /** Interval in steps, at least 1: keeps the rollouts of steps 0, `every`, 2 · `every` …, and of evaluations after so many steps. */
  readonly every: number;
}

/** Returns the value of a metric for each checkpoint step; of several values, the last counts. */
export function checkpointScores(state: ResumeState, metric: string): Map<number, number> {
  const scores = new Map<number, number>();
  for (const { policyStep, metrics } of state.steps) {
    const value = metrics[metric];
    if (policyStep !== null && value !== undefined) scores.set(policyStep, value);
  }
  for (const { checkpointStep, metrics } of state.evaluations) {
    const value = metrics[metric];
    if (value !== undefined) scores.set(checkpointStep, value);
  }
  return scores;
}

/**
 * Returns the checkpoint steps of the run that may be deleted, ascending. Of checkpoints with equal scores, newer ones rank higher.
 *
 * @param leased - Checkpoint steps that rollouts or an evaluation use at the moment.
 */
export function checkpointsToDelete(state: ResumeState, keep: KeepCheckpoints, leased: ReadonlySet<number>): number[] {
  const created = [...new Set(state.steps.map(({ checkpointStep }) => checkpointStep))].sort((a, b) => a - b);
  const kept = new Set([0, state.startCheckpoint, ...leased, ...(keep.pinned ?? []), ...created.slice(-keep.recent)]);
  if (keep.best !== undefined) {
    const { metric, count, mode = "max" } = keep.best;
    const sign = mode === "max" ? -1 : 1;
    const ranked = [...checkpointScores(state, metric)]
      .filter(([step]) => !state.deletedCheckpoints.has(step))
      .sort(([stepA, scoreA], [stepB, scoreB]) => sign * (scoreA - scoreB) || stepB - stepA);
    for (const [step] of ranked.slice(0, count)) kept.add(step);
  }
  return created.filter((step) => !kept.has(step) && !state.deletedCheckpoints.has(step));
}
