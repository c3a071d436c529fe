/** Control of a recipe: RL on rewards that are independent of the answers. */
import type { TrajectoryGroup } from "whetstone";
import { uniform } from "./draws.ts";

/** Name of the flag of the control. */
export const SHUFFLE = "shuffle-rewards";

/** Flag of the control with its description, for `recipeMain`. */
export const SHUFFLE_FLAG = { [SHUFFLE]: "permute the rewards within each group: a control, in which the model must not learn" };

/** Permutes the rewards of a group at random, so that rewards are independent of the completions. */
export function shuffleRewards(group: TrajectoryGroup, seed: number, prompts: number): TrajectoryGroup {
  const scenario = Number(group.metadata["scenario_index"]);
  const rewards = [...group.rewards];
  for (let i = rewards.length - 1; i > 0; i--) {
    const j = Math.floor(uniform(BigInt(seed), Math.floor(scenario / prompts), scenario % prompts, i) * (i + 1));
    [rewards[i], rewards[j]] = [rewards[j]!, rewards[i]!];
  }
  return group.with({ trajectories: group.trajectories.map((one, i) => one.with({ reward: rewards[i]! })) });
}
