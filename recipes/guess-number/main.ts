/**
 * Guess the number: a small model learns to play a game of several turns, on one machine.
 *
 *   npx tsx --conditions=whetstone/source recipes/guess-number/main.ts [--seed N] [--steps N] [--run-dir DIR] [--json]
 */
import { recipeMain } from "../shared/recipe-main.ts";
import { defaults } from "./config.ts";
import { guessEnvironment } from "./environment.ts";
import { exampleGame, guessScenario } from "./task.ts";

recipeMain({
  name: "guess-number",
  defaults,
  recipeFor: ({ seed, heldOut, sft }) => ({
    environment: guessEnvironment(seed, heldOut),
    exact: "found",
    validation: Array.from({ length: sft.validation }, (_, index) => guessScenario("validation", seed, index)),
    example: (index) => ({ messages: exampleGame(seed, index) }),
  }),
});
