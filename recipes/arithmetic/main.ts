/**
 * Arithmetic: a small model learns to add two numbers, on one machine.
 *
 *   npx tsx --conditions=whetstone/source recipes/arithmetic/main.ts [--seed N] [--steps N] [--run-dir DIR] [--json]
 */
import { recipeMain } from "../shared/recipe-main.ts";
import { defaults } from "./config.ts";
import { arithmeticEnvironment } from "./environment.ts";
import { arithmeticMessages, arithmeticScenario, goldAnswer } from "./task.ts";

recipeMain({
  name: "arithmetic",
  defaults,
  recipeFor: ({ seed, heldOut, sft }) => ({
    environment: arithmeticEnvironment(seed, heldOut),
    exact: "correct",
    validation: Array.from({ length: sft.validation }, (_, index) => arithmeticScenario("validation", seed, index)),
    example: (index) => {
      const scenario = arithmeticScenario("sft", seed, index);
      return { messages: [...arithmeticMessages(scenario), { role: "assistant", content: goldAnswer(scenario) }] };
    },
  }),
});
