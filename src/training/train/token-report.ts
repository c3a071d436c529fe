import type { Model } from "../../library/client/index.ts";
import type { TrainedTrajectory } from "../../base/schema/index.ts";
import type { Trajectory, TrajectoryGroup } from "../../base/trajectory/index.ts";
import type { TrainedLine } from "../../run/rows.ts";
import { scenarioIndex, type RunDirectory } from "../../run/run-directory.ts";

/** Finished job with a token report, and the groups it trained, in the order of the request. */
export interface ReportedJob {
  readonly step: number;
  readonly jobId: string;
  readonly groups: readonly TrajectoryGroup[];
  /** All groups of the step as stored. Trained groups may lack trajectories that a filter removed. */
  readonly sampled: readonly TrajectoryGroup[];
  readonly signal: AbortSignal;
}

/** Fetches the per-token advantages and log-probabilities of a job and writes them to `trained/NNNNNN.jsonl`, one trajectory per line. */
export async function keepTokenReport(
  directory: RunDirectory,
  model: Model,
  { step, jobId, groups, sampled, signal }: ReportedJob,
): Promise<void> {
  const entries = await model.service.trainingJobs.tokens(jobId, { signal });
  const stored = new Map(sampled.map((group) => [scenarioIndex(group), group]));
  const lines = entries.map(({ group: groupIndex, trajectory, turns }) => {
    const group = groups[groupIndex] as TrajectoryGroup;
    const index = scenarioIndex(group);
    // A filtered group contains the same objects as the stored group, so that `indexOf` finds the index before filtering.
    const position = stored.get(index)?.trajectories.indexOf(group.trajectories[trajectory] as Trajectory) ?? -1;
    return { scenario_index: index, trajectory_index: position === -1 ? trajectory : position, turns: byChoice(turns) };
  });
  await directory.writeTrained(step, lines, signal);
}

/**
 * Returns one entry per sampled turn of a trajectory, up to the last trained one; its values are null for a turn that was too long to
 * train.
 */
function byChoice(turns: TrainedTrajectory["turns"]): TrainedLine["turns"] {
  const known = new Map(turns.map((each) => [each.turn, each]));
  return Array.from({ length: Math.max(-1, ...known.keys()) + 1 }, (_, turn) => {
    const found = known.get(turn);
    const advantages = found?.advantages === undefined ? {} : { advantages: found.advantages };
    return { advantage: found?.advantage ?? null, ...advantages, logprobs: found?.logprobs ?? null };
  });
}
