/**
 * Tool lookup: a small model learns to call a tool repeatedly until it has the answer, on one machine.
 *
 *   npx tsx --conditions=whetstone/source recipes/tool-lookup/main.ts [--seed N] [--steps N] [--run-dir DIR] [--json]
 */
import { recipeMain } from "../shared/recipe-main.ts";
import { defaults } from "./config.ts";
import { lookupEnvironment, lookupTool } from "./environment.ts";
import { goldMessages, lookupMessages, lookupScenario } from "./task.ts";

recipeMain({
  name: "tool-lookup",
  defaults,
  recipeFor: ({ seed, heldOut, sft }) => ({
    environment: lookupEnvironment(seed, heldOut),
    exact: "correct",
    validation: Array.from({ length: sft.validation }, (_, index) => lookupScenario("validation", seed, index)),
    example: (index) => {
      const scenario = lookupScenario("sft", seed, index);
      return { messages: [...lookupMessages(scenario), ...goldMessages(scenario)], tools: [lookupTool(scenario)] };
    },
  }),
});
