/** Command line shared by the recipes. */
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { runRecipe } from "./run-recipe.ts";
import type { Recipe, SftThenRlConfig } from "./sft-then-rl.ts";

/**
 * Runs a recipe with the options of the command line and prints its result.
 *
 *   --seed N       seed of problems, sampling and order
 *   --steps N      RL steps
 *   --sft-jobs N   max number of SFT jobs
 *   --prompts N    problems per RL step
 *   --attempts N   rollouts per problem
 *   --held-out N   problems evaluated after each stage
 *   --lora-rank N  train an adapter of this rank instead of the full model
 *   --learning-rate-scale X  factor of the recipe's learning rates; adapters need larger rates
 *   --max-grad-norm X  gradient-norm clipping of every step; 0 = no clipping
 *   --run-dir DIR  default: `runs/<task>-<time>`
 *   --json         print the result as one line on standard output
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
      "lora-rank": { type: "string" },
      "learning-rate-scale": { type: "string", default: "1" },
      "max-grad-norm": { type: "string" },
      "run-dir": { type: "string" },
      json: { type: "boolean", default: false },
    },
  });
  const atLeast0 = (option: "learning-rate-scale" | "max-grad-norm") => {
    const value = Number(values[option]);
    if (!(value >= 0)) throw new RangeError(`Expected --${option} to be a number from 0, got "${values[option]}"`);
    return value;
  };
  const whole = (option: Exclude<keyof typeof values, "run-dir" | "json">, least: number) => {
    const value = Number(values[option]);
    if (!Number.isInteger(value) || value < least)
      throw new RangeError(`Expected --${option} to be a whole number from ${least}, got "${values[option]}"`);
    return value;
  };
  const heldOut = whole("held-out", 1);
  const scale = atLeast0("learning-rate-scale");
  const clip = values["max-grad-norm"] === undefined ? {} : { maxGradNorm: atLeast0("max-grad-norm") };
  const config: SftThenRlConfig = {
    ...defaults,
    ...(values["lora-rank"] === undefined ? {} : { loraRank: whole("lora-rank", 1) }),
    seed: whole("seed", 0),
    heldOut,
    sft: {
      ...defaults.sft,
      maxJobs: whole("sft-jobs", 0),
      validation: Math.min(defaults.sft.validation, heldOut),
      learningRate: scale * defaults.sft.learningRate,
      ...clip,
    },
    rl: {
      ...defaults.rl,
      steps: whole("steps", 1),
      prompts: whole("prompts", 1),
      groupSize: whole("attempts", 2),
      peakLearningRate: scale * defaults.rl.peakLearningRate,
      ...clip,
    },
  };
  const runDir = resolve(values["run-dir"] ?? join("runs", `${name}-${new Date().toISOString().replaceAll(/[:.]/g, "-")}`));
  const controller = new AbortController();
  process.once("SIGINT", () => controller.abort(new Error("stopped by the user")));
  const result = await runRecipe(recipeFor(config), config, runDir, controller.signal);
  if (values.json) console.log(JSON.stringify(result));
}
