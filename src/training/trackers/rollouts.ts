/** Selection of the rollouts that trackers store as traces. */
import { ArgumentError } from "../../base/errors.ts";
import type { TrackedEvent, TrackedRun } from "../train/tracker.ts";
import type { Trajectory } from "../../base/trajectory/index.ts";

/** Default number of rollouts per step and evaluation that a tracker stores as traces. */
export const DEFAULT_ROLLOUTS = 8;

/** Rollout to store as a trace. */
export interface TracedRollout {
  /** Purpose of the rollout. */
  readonly split: "train" | "eval";
  /** Step of the run. */
  readonly step: number;
  /** Index of the scenario within the run; for `eval`, in the `eval` lists of all environments, one after the other. */
  readonly scenarioIndex: number;
  /** Index of the rollout in its group. */
  readonly index: number;
  readonly trajectory: Trajectory;
}

/**
 * Returns the rollouts of a finished step or evaluation to store: the first of each group, then the second of each, and so on, up to
 * `count`. Empty for other events, and for a supervised run without an environment.
 */
export async function rolloutsOf(run: TrackedRun, { event }: TrackedEvent, count: number): Promise<TracedRollout[]> {
  if (event.type !== "step-end" && event.type !== "evaluation-end") return [];
  if (count === 0 || run.config["environment"] === null) return [];
  const split = event.type === "step-end" ? "train" : "eval";
  const groups = await run.groups(split, event.step);
  const all = groups.flatMap(({ metadata, trajectories }): TracedRollout[] => {
    const scenarioIndex = Number(metadata["scenario_index"]);
    return trajectories.map((trajectory, index) => ({ split, step: event.step, scenarioIndex, index, trajectory }));
  });
  return all.sort((a, b) => a.index - b.index || a.scenarioIndex - b.scenarioIndex).slice(0, count);
}

/** Checks the option `rollouts`. @throws ArgumentError `E_ARGUMENT` for another value than an integer of at least 0. */
export function checkRollouts(count: number): void {
  if (!(Number.isSafeInteger(count) && count >= 0))
    throw new ArgumentError(`Expected \`rollouts\` to be an integer of at least 0, got \`${count}\``, { param: "rollouts" });
}
