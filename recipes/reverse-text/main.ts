/**
 * Reverse-text: a small model learns to write text backwards, on one machine.
 *
 *   npx tsx --conditions=whetstone/source recipes/reverse-text/main.ts [--seed N] [--steps N] [--run-dir DIR] [--json]
 */
import { recipeMain } from "../shared/recipe-main.ts";
import { defaults } from "./config.ts";
import { reverseRecipe } from "./recipe.ts";

recipeMain({ name: "reverse-text", defaults, recipeFor: reverseRecipe });
