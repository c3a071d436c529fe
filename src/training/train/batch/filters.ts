/** Filters of a step: which of its sampled groups and trajectories are trained. */
import { completionTokens } from "../../../base/trajectory/statistics.ts";
import { isTrainableGroup } from "../../../base/trajectory/trainable.ts";
import type { Trajectory, TrajectoryGroup } from "../../../base/trajectory/index.ts";
import { scenarioIndex } from "../../../run/run-directory.ts";
import type { FilterOptions } from "./options.ts";

/** Reasons for which a group is discarded: `old` for its age, `small` for fewer than two trajectories, `constant` for equal rewards. */
export const DISCARD_REASONS = ["old", "small", "constant"] as const;
/** Reasons for which a trajectory is removed: `short` for too few sampled tokens, `long` for too many. */
export const REMOVAL_REASONS = ["short", "long"] as const;

/** Number of groups or trajectories per reason; absent for a reason that did not occur. */
export type ReasonCounts = Readonly<Record<string, number>>;

/** Groups of a step that are trained, and counts of the discarded groups and removed trajectories. */
export interface TrainedGroups {
  /** Groups to train, in order of scenario index, without their removed trajectories. */
  readonly kept: readonly TrajectoryGroup[];
  /** Scenario indices of the discarded groups, ascending. */
  readonly discardedScenarios: readonly number[];
  /** Discarded groups per reason of {@link DISCARD_REASONS}. */
  readonly discarded: ReasonCounts;
  /** Removed trajectories per reason of {@link REMOVAL_REASONS}, over all groups. */
  readonly removed: ReasonCounts;
}

/**
 * Selects the groups of a step that are trained. Pure: the result depends only on the arguments.
 *
 * @param groups - All sampled groups of the step.
 * @param filters - Conditions. The caller has replaced an absent `constant` by its default.
 * @param step - Step that trains the groups.
 */
export function selectGroups(groups: readonly TrajectoryGroup[], filters: FilterOptions, step: number): TrainedGroups {
  const kept: TrajectoryGroup[] = [];
  const discardedScenarios: number[] = [];
  const discarded: Record<string, number> = {};
  const removed: Record<string, number> = {};
  for (const group of groups.toSorted((a, b) => scenarioIndex(a) - scenarioIndex(b))) {
    const trajectories = group.trajectories.filter((trajectory) => {
      const reason = removalReason(trajectory, filters);
      if (reason !== null) removed[reason] = (removed[reason] ?? 0) + 1;
      return reason === null;
    });
    const filtered = trajectories.length === group.trajectories.length ? group : group.with({ trajectories });
    const reason = discardReason(filtered, filters, step);
    if (reason === null) kept.push(filtered);
    else {
      discarded[reason] = (discarded[reason] ?? 0) + 1;
      discardedScenarios.push(scenarioIndex(group));
    }
  }
  return { kept, discardedScenarios, discarded, removed };
}

/** Returns the reason to remove a trajectory; null to keep it. */
function removalReason(
  { allChoices }: Trajectory,
  { minCompletionTokens = 0, maxCompletionTokens = Infinity }: FilterOptions,
): (typeof REMOVAL_REASONS)[number] | null {
  const tokens = allChoices.reduce((sum, choice) => sum + completionTokens(choice), 0);
  if (tokens < minCompletionTokens) return "short";
  return tokens > maxCompletionTokens ? "long" : null;
}

/** Returns the reason to discard a group without its removed trajectories; null to keep it. */
function discardReason(
  group: TrajectoryGroup,
  { constant = false, maxAge = Infinity }: FilterOptions,
  step: number,
): (typeof DISCARD_REASONS)[number] | null {
  if (ageOf(group, step) > maxAge) return "old";
  if (!constant) return null;
  if (group.trajectories.length < 2) return "small";
  return isTrainableGroup(group.rewards) ? null : "constant";
}

/** Remedy for each reason of {@link DISCARD_REASONS}. */
const REMEDIES = {
  old: "raise `filters.maxAge`",
  small: "look for failed rollouts, or widen the range of completion tokens in `filters`",
  constant: "use scenarios that the policy solves sometimes (`curriculum`), a finer reward, larger groups, or a larger `refill.maxGroups`",
};

/** Describes why no group of a batch is left, with remedies; null if a group is left, or if none was discarded. */
export function discardMessage({ kept, discarded }: Pick<TrainedGroups, "kept" | "discarded">): string | null {
  const reasons = DISCARD_REASONS.filter((reason) => discarded[reason] !== undefined);
  if (kept.length > 0 || reasons.length === 0) return null;
  const total = reasons.reduce((sum, reason) => sum + (discarded[reason] ?? 0), 0);
  const counts = reasons.map((reason) => `${discarded[reason]} ${reason}`).join(", ");
  const remedies = reasons.map((reason) => `for ${reason}, ${REMEDIES[reason]}`).join("; ");
  return `The filters discarded all ${total} sampled groups (${counts}). If this persists: ${remedies}.`;
}

/** Returns the number of steps before `step` that were not yet trained when the rollouts of a group started. */
export function ageOf({ metadata }: TrajectoryGroup, step: number): number {
  return step - Number(metadata["policy_version"] ?? step);
}
