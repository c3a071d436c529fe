/**
 * Wall time of the quickstart to a share of exact answers on its held-out problems, compared with a plain PyTorch loop of the same steps.
 *
 *   npm run bench -- grpo [--target 0.85] [--seed 1] [--max-steps 360] [--every 10] [--threads 2] [--micro-batch 64] [--only recipe|torch]
 *
 * Both sides start from the shipped model and see the same problems in the same order: supervised jobs until the recipe's share of
 * the validation problems is exact, then RL steps. After the examples, every `--every` steps and after the last step the held-out
 * problems are answered greedily; a side stops at the first of these points that reaches the target. The clock starts before the
 * service or the model is made, and the measurements count. Draws differ between the sides, so their curves do too: read the time of
 * a step together with the time to the target, and run more than one seed.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { defaults } from "../../recipes/reverse-text/config.ts";
import { MAX_COMPLETION_TOKENS, type Split, SYSTEM_PROMPT } from "../../recipes/reverse-text/task.ts";
import { rlLearningRate } from "../../recipes/shared/sft-then-rl.ts";
import { scenarios } from "./grpo-stages.ts";
import { hasPython, measureInTurn, median, OptionError, printTable, type Variant, whole } from "./support.ts";

/** Settings of the recipe's program. */
export interface GrpoInput {
  readonly seed: number;
  /** Share of the held-out problems, in (0, 1]. */
  readonly target: number;
  /** Max RL steps of a side; the learning-rate schedule is the same as in the whole recipe. */
  readonly maxSteps: number;
  /** RL steps between two measurements. */
  readonly every: number;
}

/** Input file of the PyTorch program: a {@link GrpoInput}, the settings and the problems. */
interface GrpoPeerInput {
  readonly file: string;
}

/** Measurement of the held-out problems. */
export interface GrpoPoint {
  /** RL steps taken. */
  readonly step: number;
  /** Share of exact answers, greedily. */
  readonly exact: number;
  /** Since the start, this measurement included. */
  readonly seconds: number;
}

/** RL step: rollouts and training. */
export interface GrpoStep {
  readonly seconds: number;
  /** Mean of its rollouts. */
  readonly reward: number;
}

/** Output of both programs. */
export interface GrpoResult {
  /** Share of exact answers to the validation problems after each supervised job. */
  readonly jobs: readonly number[];
  readonly steps: readonly GrpoStep[];
  /** From 0 steps, which is after the examples. */
  readonly points: readonly GrpoPoint[];
  /** Processor time of all threads, from the start of the process. */
  readonly cpuSeconds: number;
}

/** Default gradient norm of SFT jobs. */
const SFT_MAX_GRAD_NORM = 1;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      target: { type: "string", default: "0.85" },
      seed: { type: "string", default: String(defaults.seed) },
      "max-steps": { type: "string", default: String(defaults.rl.steps) },
      every: { type: "string", default: "10" },
      // As many as the recipe's trainer takes.
      threads: { type: "string", default: String(Math.min(4, availableParallelism())) },
      "micro-batch": { type: "string", default: "64" },
      only: { type: "string" },
    },
  });
  const maxSteps = whole("max-steps", values["max-steps"]);
  if (maxSteps > defaults.rl.steps)
    throw new OptionError(`Expected --max-steps to be at most the recipe's ${defaults.rl.steps} steps, got ${maxSteps}`);
  const target = Number(values.target);
  if (!(target > 0 && target <= 1)) throw new OptionError(`Expected --target to be a share above 0, at most 1, got "${values.target}"`);
  if (values.only !== undefined && !["recipe", "torch"].includes(values.only))
    throw new OptionError(`Expected --only to be recipe or torch, got "${values.only}"`);
  const input: GrpoInput = { seed: whole("seed", values.seed, 0), target, maxSteps, every: whole("every", values.every) };
  const peer = { threads: whole("threads", values.threads), microBatch: whole("micro-batch", values["micro-batch"]) };

  const variants: Variant[] = [];
  if (values.only !== "torch") variants.push({ label: "whetstone", program: new URL("grpo-recipe.ts", import.meta.url), input });
  const directory = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  try {
    if (values.only !== "recipe" && (await hasPython("torch")) && (await hasPython("transformers"))) {
      const file = join(directory, "input.json");
      await writeFile(file, JSON.stringify({ ...input, ...peer, ...recipeFor(input) }));
      variants.push({ label: "PyTorch", program: new URL("torch_grpo.py", import.meta.url), input: { file } satisfies GrpoPeerInput });
    }
    console.log(`The quickstart to ${target} exact, seed ${input.seed}, at most ${maxSteps} RL steps, one side after the other\n`);
    const results = (await measureInTurn<GrpoResult>(variants, 1)).map(([result]) => result!);
    printResults(variants, results, target);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** The recipe's settings and problems, for a program that does not have them; no more problems than it can come to. */
function recipeFor({ seed, maxSteps }: GrpoInput): object {
  const { sft, rl, heldOut } = defaults;
  const problems = (split: Split, count: number) => scenarios(split, seed, 0, count).map(({ prompt, answer }) => [prompt, answer]);
  return {
    model: fileURLToPath(new URL("../../models/whetstone-tiny", import.meta.url)),
    system: SYSTEM_PROMPT,
    maxTokens: MAX_COMPLETION_TOKENS,
    sft: { maxGradNorm: SFT_MAX_GRAD_NORM, ...sft },
    rl: { ...rl, rates: Array.from({ length: maxSteps }, (_, step) => rlLearningRate(defaults, step)) },
    problems: {
      heldOut: problems("held-out", heldOut),
      validation: problems("validation", sft.validation),
      sft: problems("sft", sft.maxJobs * sft.stepsPerJob * sft.batchSize),
      train: problems("train", maxSteps * rl.prompts),
    },
  };
}

function printResults(variants: readonly Variant[], results: readonly GrpoResult[], target: number): void {
  const reached = results.map(({ points }) => points.find(({ exact }) => exact >= target));
  const peer = variants.findIndex(({ label }) => label === "PyTorch");
  const stepMs = results.map(({ steps }) => 1000 * median(steps.map(({ seconds }) => seconds)));
  const ratio = (of: readonly (number | undefined)[], index: number) => {
    const [own, others] = [of[index], of[peer]];
    return own === undefined || others === undefined || Number.isNaN(own / others) ? "–" : (own / others).toFixed(2);
  };
  printTable(
    ["", "s to target", "ratio", "RL steps", "s for examples", "jobs", "ms/step", "ratio of steps", "CPU s"],
    variants.map(({ label }, index) => {
      const { points, jobs, steps, cpuSeconds } = results[index]!;
      return [
        label,
        reached[index]?.seconds.toFixed(1) ?? "not reached",
        ratio(
          reached.map((point) => point?.seconds),
          index,
        ),
        String(steps.length),
        points[0]!.seconds.toFixed(1),
        String(jobs.length),
        steps.length === 0 ? "–" : stepMs[index]!.toFixed(0),
        ratio(stepMs, index),
        cpuSeconds.toFixed(0),
      ];
    }),
  );
  for (const [index, { label }] of variants.entries()) {
    const { jobs, points, steps } = results[index]!;
    const curve = points.map(({ step, exact }) => `${exact.toFixed(3)} (${step})`).join(", ");
    console.log(`${label}, exact on validation problems after each job: ${jobs.map((exact) => exact.toFixed(3)).join(", ")}`);
    console.log(`${label}, exact on held-out problems (after RL steps): ${curve}`);
    const last = steps.slice(-10).map(({ reward }) => reward);
    if (last.length > 0)
      console.log(`${label}, mean reward of the last ${last.length} steps: ${(last.reduce((a, b) => a + b, 0) / last.length).toFixed(3)}`);
  }
}
