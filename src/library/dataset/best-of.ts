/** Selection of the best trajectories of each group, for rejection sampling. */
import { ArgumentError } from "../../base/errors.ts";
import { refuse } from "../../base/util/values.ts";
import { TrajectoryGroup, type Trajectory } from "../../base/trajectory/index.ts";
import { trainedMessages } from "./chat.ts";
import { Dataset } from "./dataset.ts";
import { messagesText } from "./keys.ts";
import { checkOptionCount, checkedSource } from "./source.ts";

/** Options of {@link bestOf}: minimum reward, handling of duplicates and of constant groups. */
export interface BestOfOptions {
  /** Minimum reward of a selected trajectory; finite. @default no minimum */
  readonly minReward?: number | undefined;
  /**
   * Whether to skip a trajectory with the same sampled text as a trajectory of its group that is already selected. The text of a trajectory
   * is content, reasoning and tool calls of its trained turns; ids of tool calls are ignored.
   *
   * @default false
   */
  readonly distinct?: boolean | undefined;
  /**
   * Whether to select from constant groups, whose rewards are all equal; a group of one trajectory is constant. Equal rewards do not show
   * whether the rollouts are good: all may have succeeded, or all failed. With `minReward` the rewards do show it, so that constant groups
   * are included by default; `minReward` applies to them as to any group.
   *
   * @default true with `minReward`, else false
   */
  readonly includeConstant?: boolean | undefined;
}

/**
 * Selects the `n` trajectories with the highest rewards of each group, for rejection sampling: supervised training on the best of several
 * rollouts.
 *
 * The result has the groups in their order, and the trajectories of a group from the highest reward down; trajectories with equal rewards
 * keep their order. A group with fewer suitable trajectories contributes fewer. Failed rollouts (`exceptions`) are never selected. Memory:
 * one group at a time.
 *
 * @param groups - Groups in memory, from `readTrajectoryGroups` or from a stream. A generator can be read only once, so a dataset from a
 *   generator cannot be split.
 * @param n - Maximum number of trajectories per group, at least 1.
 * @param options - Minimum reward, handling of duplicates and of constant groups.
 * @returns Dataset of the selected trajectories, unchanged. Iterating throws ArgumentError `E_ARGUMENT` for an item that is not a group, and
 *   ConflictError `E_CONFLICT` for a second iteration over a generator.
 * @throws ArgumentError `E_ARGUMENT` for an `n` that is not an integer of at least 1, or a `minReward` that is not a finite number.
 * @source Best-of-n fine-tuning: Dong et al., "RAFT: Reward rAnked FineTuning", arXiv:2304.06767.
 * @example
 * ```ts
 * import { bestOf, readTrajectoryGroups, uploadDataset } from "whetstone/dataset";
 *
 * const best = bestOf(readTrajectoryGroups("runs/*\/trajectories/train/*.jsonl"), 2, { minReward: 0.9, distinct: true });
 * const { train, validation } = best.split({ validation: 0.1, seed: 7, by: (t) => t.metadata["scenario_id"] });
 * const job = await model.trainSft(await uploadDataset(service, { name: "best", train, validation }), { batchSize: 16 });
 * ```
 */
export function bestOf(
  groups: Iterable<TrajectoryGroup> | AsyncIterable<TrajectoryGroup>,
  n: number,
  { minReward, distinct = false, includeConstant = minReward !== undefined }: BestOfOptions = {},
): Dataset {
  checkOptionCount(n, { param: "n", min: 1 });
  if (minReward !== undefined && !Number.isFinite(minReward)) refuse("minReward", "a finite number", minReward);
  const source = checkedSource(groups, checkedGroup);
  return Dataset.from({
    async *[Symbol.asyncIterator]() {
      for await (const group of source) {
        if (includeConstant || !isConstant(group)) yield* bestOfGroup(group, { n, minReward, distinct });
      }
    },
  });
}

/** Returns the selected trajectories of one group, the highest reward first. */
function bestOfGroup(
  { trajectories }: TrajectoryGroup,
  { n, minReward = -Infinity, distinct }: Pick<BestOfOptions, "minReward" | "distinct"> & { readonly n: number },
): Trajectory[] {
  const best: Trajectory[] = [];
  /** Sampled texts of the selected trajectories, if `distinct`. */
  const texts = new Set<string>();
  // The sort is stable: trajectories with equal rewards keep their order.
  for (const trajectory of trajectories.toSorted((a, b) => b.reward - a.reward)) {
    if (best.length === n || trajectory.reward < minReward) break;
    if (distinct) {
      const text = messagesText(trainedMessages(trajectory));
      if (texts.has(text)) continue;
      texts.add(text);
    }
    best.push(trajectory);
  }
  return best;
}

/** Whether all trajectories of a group have the same reward. */
function isConstant({ rewards }: TrajectoryGroup): boolean {
  return rewards.every((reward) => reward === rewards[0]);
}

/** Returns a group unchanged. @throws ArgumentError `E_ARGUMENT` for any other value. */
export function checkedGroup(value: TrajectoryGroup): TrajectoryGroup {
  if (TrajectoryGroup.isInstance(value)) return value;
  const given: unknown = value;
  const got = given === null || given === undefined ? String(given) : (given.constructor?.name ?? typeof given);
  throw new ArgumentError(`Expected a TrajectoryGroup, got ${got}; \`readTrajectoryGroups\` reads groups`, { param: "groups" });
}
