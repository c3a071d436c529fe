/** The command line that recipes share. */
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { runRecipe } from "./run-recipe.ts";
import type { Recipe, SftThenRlConfig } from "./sft-then-rl.ts";

/**
 * Runs a recipe as the command line says and prints what came out.
 *
 *   --seed N       problems, sampling and the order of everything
 *   --steps N      RL steps
 *   --sft-jobs N   at most so many jobs of examples
 *   --prompts N    problems of an RL step
 *   --attempts N   attempts at each of them
 *   --held-out N   problems that are measured after each stage
 *   --run-dir DIR  default: `runs/<task>-<time>`
 *   --json         the result as one line on standard output
 */
export function recipeMain<S>(name: string, defaults: SftThenRlConfig, recipeFor: (config: SftThenRlConfig) => Recipe<S>): void {
  run(name, defaults, recipeFor).catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}

async function run<S>(name: string, defaults: SftThenRlConfig, recipeFor: (config: SftThenRlConfig) => Recipe<S>): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: "string", default: String(defaults.seed) },
      steps: { type: "string", default: String(defaults.rl.steps) },
      "sft-jobs": { type: "string", default: String(defaults.sft.maxJobs) },
      prompts: { type: "string", default: String(defaults.rl.prompts) },
      attempts: { type: "string", default: String(defaults.rl.groupSize) },
      "held-out": { type: "string", default: String(defaults.heldOut) },
      "run-dir": { type: "string" },
      json: { type: "boolean", default: false },
    },
  });
  const whole = (option: Exclude<keyof typeof values, "run-dir" | "json">, least: number) => {
    const value = Number(values[option]);
    if (!Number.isInteger(value) || value < least)
      throw new RangeError(`Expected --${option} to be a whole number from ${least}, got "${values[option]}"`);
    return value;
  };
  const heldOut = whole("held-out", 1);
  const config: SftThenRlConfig = {
    ...defaults,
    seed: whole("seed", 0),
    heldOut,
    sft: { ...defaults.sft, maxJobs: whole("sft-jobs", 0), validation: Math.min(defaults.sft.validation, heldOut) },
    rl: { ...defaults.rl, steps: whole("steps", 1), prompts: whole("prompts", 1), groupSize: whole("attempts", 2) },
  };
  const runDir = resolve(values["run-dir"] ?? join("runs", `${name}-${new Date().toISOString().replaceAll(/[:.]/g, "-")}`));
  const controller = new AbortController();
  process.once("SIGINT", () => controller.abort(new Error("stopped by the user")));
  const result = await runRecipe(recipeFor(config), config, runDir, controller.signal);
  if (values.json) console.log(JSON.stringify(result));
}
