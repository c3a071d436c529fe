/**
 * The quickstart: a small model learns to write text backwards, on one machine, in a few minutes.
 *
 *   npm run quickstart -- [--seed N] [--shuffle-rewards] [--steps N] [--run-dir DIR] [--json]
 *
 * It is the recipe reverse-text, with the rollout seeds of the published results.
 */
import type { TrajectoryGroup } from "whetstone";
import { defineEnvironment } from "whetstone/environment";
import { rolloutSeed } from "whetstone/rollout";
import { defaults } from "../reverse-text/config.ts";
import { reverseRecipe } from "../reverse-text/recipe.ts";
import { uniform } from "../shared/draws.ts";
import { recipeMain } from "../shared/recipe-main.ts";

const SHUFFLE = "shuffle-rewards";

recipeMain({
  name: "quickstart",
  defaults,
  flags: { [SHUFFLE]: "permute the rewards within each group: a control, in which the model must not learn" },
  recipeFor(config, flags) {
    const { seed, rl } = config;
    const recipe = reverseRecipe(config);
    const environment = defineEnvironment({
      ...recipe.environment,
      rollout(scenario, context) {
        const step = Math.floor(context.group / rl.prompts);
        const drawn = rolloutSeed(seed * 1_000_003 + step, context.group % rl.prompts, context.index);
        return recipe.environment.rollout(scenario, { ...context, sampling: { ...context.sampling, seed: drawn } });
      },
    });
    return { ...recipe, environment, scoreGroup: flags.has(SHUFFLE) ? (group) => shuffleRewards(group, seed, rl.prompts) : undefined };
  },
});

/** Permutes the rewards of a group at random, so that rewards are independent of the completions. */
function shuffleRewards(group: TrajectoryGroup, seed: number, prompts: number): TrajectoryGroup {
  const scenario = Number(group.metadata["scenario_index"]);
  const rewards = [...group.rewards];
  for (let i = rewards.length - 1; i > 0; i--) {
    const j = Math.floor(uniform(BigInt(seed), Math.floor(scenario / prompts), scenario % prompts, i) * (i + 1));
    [rewards[i], rewards[j]] = [rewards[j]!, rewards[i]!];
  }
  return group.with({ trajectories: group.trajectories.map((one, i) => one.with({ reward: rewards[i]! })) });
}
