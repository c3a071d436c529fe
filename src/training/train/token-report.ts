/** Trainer's values of each token, fetched from the service after a job, for the report of the run. */
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
  const storedGroups = new Map(sampled.map((group) => [scenarioIndex(group), group]));
  const lines = entries.map(({ group: groupIndex, trajectory: trainedIndex, turns }) => {
    const group = groups[groupIndex] as TrajectoryGroup;
    const scenario = scenarioIndex(group);
    // A filtered group contains the same objects as the stored group, so that `indexOf` finds the index before filtering.
    const storedIndex = storedGroups.get(scenario)?.trajectories.indexOf(group.trajectories[trainedIndex] as Trajectory) ?? -1;
    return { scenario_index: scenario, trajectory_index: storedIndex === -1 ? trainedIndex : storedIndex, turns: byChoice(turns) };
  });
  await directory.writeTrained(step, lines, signal);
}

/**
 * Returns one entry per sampled turn of a trajectory, up to the last trained one; its values are null for a turn that was too long to
 * train.
 */
function byChoice(turns: TrainedTrajectory["turns"]): TrainedLine["turns"] {
  const trainedTurns = new Map(turns.map((each) => [each.turn, each]));
  const lastTurn = Math.max(-1, ...trainedTurns.keys());
  return Array.from({ length: lastTurn + 1 }, (_, turn) => {
    const trained = trainedTurns.get(turn);
    const advantages = trained?.advantages === undefined ? {} : { advantages: trained.advantages };
    return { advantage: trained?.advantage ?? null, ...advantages, logprobs: trained?.logprobs ?? null };
  });
}
