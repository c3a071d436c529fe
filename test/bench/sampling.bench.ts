/**
 * Rollouts that the RL stage of the arithmetic recipe samples until a share of the held-out problems is exact, with problems in random order
 * (`uniform`) and with a curriculum and refill (`curriculum`).
 *
 *   npm run bench -- sampling [--seeds 1,2,3] [--target 0.8] [--prompts 64] [--attempts 4] [--learning-rate 3e-4] [--max-steps 200]
 *     [--every 5] [--largest 100] [--only uniform|curriculum] [--key difficulty|digits|units|problem] [--pool 4096] [--pass-rate 0.5]
 *     [--decay 0.95] [--max-groups 128] [--dir DIR]
 *
 * `--largest` is the max number in the training problems; examples and held-out problems have numbers up to 100. The learning rate is
 * constant after the warm-up, because runs with equal rollouts can have different numbers of steps.
 *
 * `--key`, `--pool`, `--pass-rate` (`curriculum.target`), `--decay` and `--max-groups` (of the refill) apply to the curriculum. With
 * `--max-groups` equal to `--prompts`, no group is replaced.
 *
 * All runs of a seed start from the same checkpoint, trained on the recipe's examples. The held-out problems are answered greedily before
 * the first step and every `--every` steps; a run stops at the first evaluation that reaches the target. Rollouts of discarded groups
 * are counted, too. With `--dir`, an interrupted benchmark resumes.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { defaults } from "../../recipes/arithmetic/config.ts";
import { arithmeticEnvironment } from "../../recipes/arithmetic/environment.ts";
import {
  arithmeticMessages,
  type ArithmeticScenario,
  arithmeticScenario,
  difficulty,
  goldAnswer,
  LARGEST,
} from "../../recipes/arithmetic/task.ts";
import { learnFromExamples, type Recipe } from "../../recipes/shared/sft-then-rl.ts";
import { connect, type Service, trainRl } from "../../src/index.ts";
import type { TrainRlOptions } from "../../src/training/train/index.ts";
import { median, OptionError, printTable, whole } from "./support.ts";

const VARIANTS = ["uniform", "curriculum"] as const;
type Variant = (typeof VARIANTS)[number];

/** Keys of problems that share a pass rate; `problem` gives every problem its own. */
const KEYS = {
  difficulty,
  units: ({ x, y }: ArithmeticScenario) => `${x % 10}+${y % 10}`,
  digits: ({ x, y }: ArithmeticScenario) => `${String(Math.min(x, y)).length}+${String(Math.max(x, y)).length}`,
  problem: undefined,
} as const;
type Key = keyof typeof KEYS;

interface Settings {
  readonly target: number;
  readonly prompts: number;
  readonly attempts: number;
  readonly maxSteps: number;
  readonly every: number;
  /** Max number in the training problems. */
  readonly largest: number;
  /** Learning rate of the RL stage after the warm-up. */
  readonly learningRate: number;
  readonly key: Key;
  /** Number of problems that the curriculum samples from. */
  readonly pool: number;
  readonly passRate: number;
  readonly decay: number;
  readonly maxGroups: number;
  readonly dir: string;
}

interface Outcome {
  readonly seed: number;
  readonly variant: Variant;
  readonly steps: number;
  readonly rollouts: number;
  readonly start: number;
  /** Share of exact answers at the last evaluation. */
  readonly exact: number;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      seeds: { type: "string", default: "1,2,3" },
      target: { type: "string", default: "0.8" },
      prompts: { type: "string", default: String(defaults.rl.prompts) },
      attempts: { type: "string", default: String(defaults.rl.groupSize) },
      "max-steps": { type: "string", default: String(defaults.rl.steps) },
      every: { type: "string", default: "5" },
      largest: { type: "string", default: String(LARGEST) },
      "learning-rate": { type: "string", default: String(defaults.rl.peakLearningRate) },
      key: { type: "string", default: "difficulty" },
      pool: { type: "string", default: "4096" },
      "pass-rate": { type: "string", default: "0.5" },
      decay: { type: "string", default: "0.95" },
      "max-groups": { type: "string" },
      only: { type: "string" },
      dir: { type: "string" },
    },
  });
  const target = Number(values.target);
  if (!(target > 0 && target <= 1)) throw new OptionError(`Expected --target to be above 0 and at most 1, got "${values.target}"`);
  const variants = VARIANTS.filter((variant) => values.only === undefined || values.only === variant);
  if (variants.length === 0) throw new OptionError(`Expected --only to be ${VARIANTS.join(" or ")}, got "${values.only}"`);
  if (!Object.hasOwn(KEYS, values.key)) throw new OptionError(`Expected --key to be ${Object.keys(KEYS).join(", ")}, got "${values.key}"`);
  const learningRate = Number(values["learning-rate"]);
  if (!(learningRate > 0)) throw new OptionError(`Expected --learning-rate to be above 0, got "${values["learning-rate"]}"`);
  const passRate = Number(values["pass-rate"]);
  if (!(passRate > 0 && passRate < 1))
    throw new OptionError(`Expected --pass-rate to be above 0 and below 1, got "${values["pass-rate"]}"`);
  const decay = Number(values.decay);
  if (!(decay > 0 && decay <= 1)) throw new OptionError(`Expected --decay to be above 0 and at most 1, got "${values.decay}"`);
  const prompts = whole("prompts", values.prompts);
  const seeds = values.seeds.split(",").map((text) => whole("seeds", text));
  const checked: Omit<Settings, "dir"> = {
    target,
    prompts,
    attempts: whole("attempts", values.attempts, 2),
    maxSteps: whole("max-steps", values["max-steps"]),
    every: whole("every", values.every),
    largest: whole("largest", values.largest, LARGEST),
    learningRate,
    key: values.key as Key,
    pool: whole("pool", values.pool),
    passRate,
    decay,
    maxGroups: whole("max-groups", values["max-groups"] ?? String(2 * prompts), prompts),
  };
  const temporary = values.dir === undefined ? await mkdtemp(join(tmpdir(), "whetstone-bench-")) : null;
  const settings: Settings = { ...checked, dir: temporary ?? resolve(values.dir ?? "") };
  const outcomes: Outcome[] = [];
  try {
    for (const seed of seeds) {
      const service = await connect({ dataDir: join(settings.dir, `service-${seed}`) });
      try {
        for (const variant of variants) {
          outcomes.push(await practice(service, seed, variant, settings));
          print(outcomes.slice(-1), settings);
        }
      } finally {
        await service.close();
      }
    }
    print(outcomes, settings);
    for (const variant of variants) {
      const rollouts = outcomes.filter((each) => each.variant === variant).map((each) => each.rollouts);
      console.log(`${variant}: median ${median(rollouts)} rollouts`);
    }
  } finally {
    if (temporary !== null) await rm(temporary, { recursive: true, force: true });
  }
}

/** Trains the examples of a seed unless they are trained, then one variant from their checkpoint. */
async function practice(service: Service, seed: number, variant: Variant, settings: Settings): Promise<Outcome> {
  const { prompts, attempts, maxSteps, every, target, dir, learningRate, key, pool, passRate, decay, maxGroups, largest } = settings;
  const config = { ...defaults, seed };
  const { warmupSteps, maxGradNorm } = config.rl;
  const { signal } = new AbortController();
  const environment = arithmeticEnvironment(seed, config.heldOut, largest);
  const recipe: Recipe<ArithmeticScenario> = {
    environment,
    exact: "correct",
    validation: Array.from({ length: config.sft.validation }, (_, index) => arithmeticScenario("validation", seed, index)),
    example: (index) => {
      const scenario = arithmeticScenario("sft", seed, index);
      return { messages: [...arithmeticMessages(scenario), { role: "assistant", content: goldAnswer(scenario) }] };
    },
  };
  const base = { project: "bench", baseModel: "whetstone-tiny", returnExisting: true };
  const taught = await service.models.create({ ...base, name: "taught" });
  const { checkpointStep } = await learnFromExamples({ service, model: taught, recipe, config, runDir: join(dir, `sft-${seed}`), signal })
    .done;
  const selected = variant === "uniform" ? [] : [key, pool, passRate, decay, maxGroups];
  const name = [variant, `${prompts}x${attempts}`, learningRate, largest, ...selected].join("-");
  const model = await service.models.create({ ...base, name, from: (await taught.policy(checkpointStep)).id, keepOptimizer: true });
  const selection: Partial<TrainRlOptions<ArithmeticScenario>> =
    variant === "uniform"
      ? {}
      : { curriculum: { pool, key: KEYS[key], metric: "reward/correct", target: passRate, decay }, refill: { maxGroups } };
  const run = trainRl({
    model,
    environment,
    runDir: join(dir, `${name}-${seed}`),
    steps: maxSteps,
    scenariosPerStep: prompts,
    groupSize: attempts,
    train: (step) => ({ learningRate: learningRate * Math.min(1, (step + 1) / warmupSteps), maxGradNorm }),
    seed,
    evaluation: { every },
    stopWhen: ({ evaluation }) => exactOf(evaluation) >= target,
    maxSkippedSteps: maxSteps + 1,
    keepCheckpoints: { recent: 2 },
    keepTrajectories: { every: maxSteps },
    tokenReportEvery: 0,
    concurrency: 256,
    retries: 2,
    report: false,
    ...selection,
  });
  let rollouts = 0;
  const exact: number[] = [];
  for await (const event of run) {
    if (event.type === "batch-end") rollouts += event.sampled * attempts;
    if (event.type === "evaluation-end") exact.push(exactOf(event.metrics));
  }
  const { steps } = await run.done;
  return { seed, variant, steps, rollouts, start: exact[0] ?? NaN, exact: exact.at(-1) ?? NaN };
}

function exactOf(metrics: Readonly<Record<string, number>> | null): number {
  return metrics?.["eval/metric/reward/correct"] ?? 0;
}

function print(outcomes: readonly Outcome[], { target }: Settings): void {
  printTable(
    ["seed", "sampling", "exact at the start", "at the end", "RL steps", "rollouts"],
    outcomes.map(({ seed, variant, steps, rollouts, start, exact }) => [
      String(seed),
      variant,
      start.toFixed(3),
      exact.toFixed(3),
      String(steps),
      exact >= target ? String(rollouts) : `more than ${rollouts}`,
    ]),
  );
}
