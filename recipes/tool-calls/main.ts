/**
 * Tool calls on a real model: it learns to choose tools and their arguments over several turns, on one machine.
 *
 *   npx tsx --conditions=whetstone/source recipes/tool-calls/main.ts --base <directory, GGUF file or hub name> [--seed N] [--shuffle-rewards]
 */
import { recipeMain } from "../shared/recipe-main.ts";
import { defaults } from "./config.ts";
import { SHUFFLE, SHUFFLE_FLAG, shuffleRewards } from "../shared/shuffle-rewards.ts";
import { callEnvironment, toolsOf } from "./environment.ts";
import { callScenario, goldMessages, requestMessages } from "./task.ts";

recipeMain({
  name: "tool-calls",
  defaults,
  flags: SHUFFLE_FLAG,
  recipeFor: ({ seed, heldOut, sft, rl }, flags) => ({
    environment: callEnvironment(seed, heldOut),
    exact: "correct",
    scoreGroup: flags.has(SHUFFLE) ? (group) => shuffleRewards(group, seed, rl.prompts) : undefined,
    validation: Array.from({ length: sft.validation }, (_, index) => callScenario("validation", seed, index)),
    example: (index) => {
      const scenario = callScenario("sft", seed, index);
      return { messages: [...requestMessages(scenario), ...goldMessages(scenario)], tools: toolsOf(scenario) };
    },
  }),
});
