/** Command line shared by the recipes. */
import { join, relative, resolve } from "node:path";
import { Command, InvalidArgumentError } from "commander";
import { runRecipe } from "./run-recipe.ts";
import type { Recipe, SftThenRlConfig } from "./sft-then-rl.ts";

/** Name, settings and stages of a recipe's command. */
export interface RecipeCommand<S> {
  /** Name of the recipe and of its run directories. */
  readonly name: string;
  /** Settings without options on the command line. */
  readonly defaults: SftThenRlConfig;
  /** Further flags of the command: name without dashes → description. @default none */
  readonly flags?: Readonly<Record<string, string>> | undefined;
  /** Returns the recipe for the settings; `flags` has the names of the given flags. */
  readonly recipeFor: (config: SftThenRlConfig, flags: ReadonlySet<string>) => Recipe<S>;
}

interface Options {
  readonly base?: string;
  readonly seed: number;
  readonly steps: number;
  readonly sftJobs: number;
  readonly sftSteps: number;
  readonly prompts: number;
  readonly attempts: number;
  readonly heldOut: number;
  readonly loraRank?: number;
  readonly learningRateScale: number;
  readonly maxGradNorm?: number;
  readonly runDir?: string;
  readonly json?: true;
}

/** Exit code of a program that SIGINT ended. */
const STOPPED = 130;

/**
 * Runs a recipe with the options of the command line and prints its result; `--help` lists the options. After Ctrl-C it prints the command
 * that resumes the run, and the exit code is 130.
 */
export function recipeMain<S>(recipe: RecipeCommand<S>): void {
  commandOf(recipe)
    .parseAsync()
    .catch((error: unknown) => {
      console.error(error instanceof Error ? error.message : error);
      process.exitCode = 1;
    });
}

function commandOf<S>({ name, defaults, flags = {}, recipeFor }: RecipeCommand<S>): Command {
  const { sft, rl } = defaults;
  const command = new Command(name)
    .description("Trains a small model by SFT on examples, then by RL, and evaluates it after each stage.")
    .option(
      "--base <model>",
      "base model: a name, a directory, a .gguf file, hf:<owner>/<name> or ollama:<name> (default: the model of the package)",
      defaults.base,
    )
    .option("--seed <n>", "seed of problems, sampling and order", whole(0), defaults.seed)
    .option("--steps <n>", "RL steps", whole(1), rl.steps)
    .option("--sft-jobs <n>", "max number of SFT jobs", whole(0), sft.maxJobs)
    .option("--sft-steps <n>", "optimizer steps per SFT job", whole(1), sft.stepsPerJob)
    .option("--prompts <n>", "problems per RL step", whole(1), rl.prompts)
    .option("--attempts <n>", "rollouts per problem", whole(2), rl.groupSize)
    .option("--held-out <n>", "problems evaluated after each stage", whole(1), defaults.heldOut)
    .option("--lora-rank <n>", "train an adapter of this rank instead of the full model", whole(1), defaults.loraRank)
    .option("--learning-rate-scale <x>", "factor of the recipe's learning rates; adapters need larger rates", number, 1)
    .option("--max-grad-norm <x>", "gradient-norm clipping of every step; 0 = no clipping", number)
    .option("--run-dir <dir>", `directory of all files (default: runs/${name}-<time>)`)
    .option("--json", "print the result as one line on standard output");
  for (const [flag, description] of Object.entries(flags)) command.option(`--${flag}`, description);
  return command.action(async (options: Options) => {
    const config = configOf(defaults, options);
    const given = Object.keys(flags).filter((flag) => command.getOptionValueSource(camelCase(flag)) === "cli");
    const settings = { recipe: name, flags: given.toSorted(), ...config };
    const runDir = resolve(options.runDir ?? join("runs", `${name}-${new Date().toISOString().replaceAll(/[:.]/g, "-")}`));
    const controller = new AbortController();
    const stop = () => controller.abort(new Error("stopped by the user"));
    process.once("SIGINT", stop);
    try {
      const result = await runRecipe(recipeFor(config, new Set(given)), settings, runDir, controller.signal);
      if (options.json === true) console.log(JSON.stringify(result));
    } catch (error) {
      if (!controller.signal.aborted) throw error;
      const runDirOption = options.runDir === undefined ? ["--run-dir", relative("", runDir)] : [];
      console.error(`Stopped. This command resumes the run:\n\n  ${commandLine(name, [...process.argv.slice(2), ...runDirOption])}\n`);
      process.exitCode = STOPPED;
    } finally {
      process.off("SIGINT", stop);
    }
  });
}

/** Returns the shell command that starts this program with other arguments. */
function commandLine(name: string, args: readonly string[]): string {
  const isScript = process.env["npm_lifecycle_event"] === name;
  const program = relative("", process.argv[1] ?? "");
  const start = isScript ? ["npm", "run", name, "--"] : ["npx", "tsx", "--conditions=whetstone/source", program];
  return [...start, ...args].map((word) => (/^[\w./=:@%+-]+$/u.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

function configOf(defaults: SftThenRlConfig, options: Options): SftThenRlConfig {
  const { base, seed, heldOut, loraRank, maxGradNorm, learningRateScale: scale } = options;
  const clip = maxGradNorm === undefined ? {} : { maxGradNorm };
  return {
    ...defaults,
    ...(base === undefined ? {} : { base }),
    ...(loraRank === undefined ? {} : { loraRank }),
    seed,
    heldOut,
    sft: {
      ...defaults.sft,
      maxJobs: options.sftJobs,
      stepsPerJob: options.sftSteps,
      validation: Math.min(defaults.sft.validation, heldOut),
      learningRate: scale * defaults.sft.learningRate,
      ...clip,
    },
    rl: {
      ...defaults.rl,
      steps: options.steps,
      prompts: options.prompts,
      groupSize: options.attempts,
      peakLearningRate: scale * defaults.rl.peakLearningRate,
      ...clip,
    },
  };
}

/** Returns a parser of whole numbers from `least`. */
function whole(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!Number.isInteger(value) || value < least) throw new InvalidArgumentError(`Expected a whole number from ${least}.`);
    return value;
  };
}

function number(text: string): number {
  const value = Number(text);
  if (!(value >= 0)) throw new InvalidArgumentError("Expected a number from 0.");
  return value;
}

/** Returns the name under which commander stores a flag. */
function camelCase(flag: string): string {
  return flag.replaceAll(/-(\w)/gu, (_, letter: string) => letter.toUpperCase());
}
