import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Model } from "../client/index.ts";
import { writeJsonLines } from "../dataset/jsonl.ts";
import type { TrainedTrajectory } from "../schema/index.ts";
import type { TrajectoryGroup } from "../trajectory/index.ts";
import { scenarioIndex, type RunDirectory } from "./run-directory.ts";

/** Finished job with a token report, and the groups it trained, in the order of the request. */
export interface ReportedJob {
  readonly step: number;
  readonly jobId: string;
  readonly groups: readonly TrajectoryGroup[];
  readonly signal: AbortSignal;
}

/** Fetches the per-token advantages and log-probabilities of a job and writes them to `trained/NNNNNN.jsonl`, one trajectory per line. */
export async function keepTokenReport(directory: RunDirectory, model: Model, { step, jobId, groups, signal }: ReportedJob): Promise<void> {
  const entries = await model.service.trainingJobs.tokens(jobId, { signal });
  const lines = entries.map(({ group, trajectory, turns }) => ({
    scenario_index: scenarioIndex(groups[group] as TrajectoryGroup),
    trajectory_index: trajectory,
    turns: byChoice(turns),
  }));
  await mkdir(join(directory.path, "trained"), { recursive: true });
  await writeJsonLines(join(directory.path, "trained", `${String(step).padStart(6, "0")}.jsonl`), lines, { signal });
}

/** Turn in `trained/NNNNNN.jsonl`. */
interface KeptTurn {
  readonly advantage: number | null;
  readonly advantages?: readonly number[];
  readonly logprobs: readonly (number | null)[] | null;
}

/** Returns one entry per choice of a trajectory; nulls for a turn that was too long to train. */
function byChoice(turns: TrainedTrajectory["turns"]): KeptTurn[] {
  const known = new Map(turns.map((each) => [each.turn, each]));
  return Array.from({ length: Math.max(-1, ...known.keys()) + 1 }, (_, turn) => {
    const found = known.get(turn);
    const advantages = found?.advantages === undefined ? {} : { advantages: found.advantages };
    return { advantage: found?.advantage ?? null, ...advantages, logprobs: found?.logprobs ?? null };
  });
}
