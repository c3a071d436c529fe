/**
 * Verifiable instructions: a pretrained model learns to follow instructions that a program can check, on one machine.
 *
 *   npx tsx --conditions=whetstone/source recipes/instructions/main.ts [--base MODEL] [--seed N] [--shuffle-rewards] [--run-dir DIR] [--json]
 */
import { recipeMain } from "../shared/recipe-main.ts";
import { SHUFFLE, SHUFFLE_FLAG, shuffleRewards } from "../shared/shuffle-rewards.ts";
import { defaults } from "./config.ts";
import { instructionsEnvironment } from "./environment.ts";
import { goldAnswer } from "./gold.ts";
import { instructionMessages, instructionScenario } from "./task.ts";

recipeMain({
  name: "instructions",
  defaults,
  flags: SHUFFLE_FLAG,
  recipeFor: ({ seed, heldOut, sft, rl }, flags) => ({
    environment: instructionsEnvironment(seed, heldOut),
    exact: "exact",
    validation: Array.from({ length: sft.validation }, (_, index) => instructionScenario("validation", seed, index)),
    example: (index) => {
      const scenario = instructionScenario("sft", seed, index);
      return { messages: [...instructionMessages(scenario), { role: "assistant", content: goldAnswer(scenario) }] };
    },
    scoreGroup: flags.has(SHUFFLE) ? (group) => shuffleRewards(group, seed, rl.prompts) : undefined,
  }),
});
