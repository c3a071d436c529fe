/**
 * Reverse-text: a small model learns to write text backwards, on one machine.
 *
 *   npx tsx --conditions=whetstone/source recipes/reverse-text/main.ts [--seed N] [--steps N] [--run-dir DIR] [--json]
 */
import { recipeMain } from "../shared/recipe-main.ts";
import { defaults } from "./config.ts";
import { reverseEnvironment } from "./environment.ts";
import { goldAnswer, reverseMessages, reverseScenario } from "./task.ts";

recipeMain("reverse-text", defaults, ({ seed, heldOut, sft }) => ({
  environment: reverseEnvironment(seed, heldOut),
  exact: "exact",
  validation: Array.from({ length: sft.validation }, (_, index) => reverseScenario("validation", seed, index)),
  example: (index) => {
    const scenario = reverseScenario("sft", seed, index);
    return { messages: [...reverseMessages(scenario), { role: "assistant", content: goldAnswer(scenario) }] };
  },
}));
