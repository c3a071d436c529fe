/**
 * The quickstart: a small model learns to write text backwards, on one machine, in a few minutes.
 *
 *   npm run quickstart -- [--seed N] [--shuffle-rewards] [--steps N] [--run-dir DIR] [--json]
 *
 * It is the recipe reverse-text, with the rollout seeds of the published results.
 */
import { defineEnvironment } from "whetstone/environment";
import { rolloutSeed } from "whetstone/rollout";
import { defaults } from "../reverse-text/config.ts";
import { reverseRecipe } from "../reverse-text/recipe.ts";
import { recipeMain } from "../shared/recipe-main.ts";
import { SHUFFLE, SHUFFLE_FLAG, shuffleRewards } from "../shared/shuffle-rewards.ts";

recipeMain({
  name: "quickstart",
  defaults,
  flags: SHUFFLE_FLAG,
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
