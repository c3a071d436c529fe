/** Complete run of a recipe: evaluation before, between and after SFT and RL, with progress, a table and a curve. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { connect } from "whetstone";
import { lineChart } from "whetstone/experiment";
import { type RunSettings, writeSettings } from "./settings.ts";
import { bar, createProgress, type Progress, styled } from "./progress.ts";
import {
  type Interval,
  learnFromExamples,
  learnFromPractice,
  measure,
  type Recipe,
  type Score,
  type SftThenRlConfig,
  type Stage,
} from "./sft-then-rl.ts";

/** A value per stage. */
export interface Stages<T> {
  /** Value for the untrained base model. */
  readonly base: T;
  /** Value after SFT on the examples. */
  readonly sft: T;
  /** Value after RL. */
  readonly rl: T;
}

/** Result of a run; the last line of `--json`. */
export interface RecipeResult {
  readonly task: string;
  /** Fraction of correct answers. */
  readonly exact: Stages<number>;
  /** 95 % confidence interval of `exact` over the held-out problems. */
  readonly exactInterval: Stages<Interval>;
  readonly reward: Stages<number>;
  /** Number of RL steps. */
  readonly steps: number;
  readonly seconds: number;
  readonly runDir: string;
}

interface Point {
  readonly step: number;
  readonly reward: number;
  readonly exact: number;
}

/**
 * Runs all stages on the configured service, or on an embedded service of the run. All files are written under `runDir`.
 *
 * @throws ConfigError `E_CONFIG` if `runDir` has a run with other settings.
 */
export async function runRecipe<S>(recipe: Recipe<S>, config: RunSettings, runDir: string, signal: AbortSignal): Promise<RecipeResult> {
  const started = performance.now();
  const seconds = () => Math.round((performance.now() - started) / 100) / 10;
  const { name } = recipe.environment;
  const progress = createProgress();
  await writeSettings(config, runDir);
  progress.line(styled("bold", `Whetstone recipe: ${name}`) + styled("dim", `  seed ${config.seed}, files in ${runDir}`));

  // Uses the service of WHETSTONE_BASE_URL if set, else an embedded service of this run.
  const service = await connect(process.env["WHETSTONE_BASE_URL"] === undefined ? { dataDir: join(runDir, "service") } : {});
  try {
    const lora = config.loraRank === undefined ? {} : { lora: { rank: config.loraRank } };
    const model = await service.models.create({
      project: "recipes",
      name,
      baseModel: config.base ?? "whetstone-tiny",
      ...lora,
      returnExisting: true,
      signal,
    });
    const stage = { service, model, recipe, config, signal };
    const measured = async (title: string, step: number) => {
      const score = await measure(recipe, await model.policy(step), config, signal);
      progress.line(`${title.padEnd(16)} ${styled("green", words(score))}  ${styled("dim", `${seconds()} s`)}`);
      return score;
    };
    const base = await measured("untrained", 0);
    const taught = config.sft.maxJobs === 0 ? 0 : await examples({ ...stage, runDir: join(runDir, "sft") }, progress);
    const sft = await measured("after examples", taught);
    const { points, checkpointStep } = await practice({ ...stage, runDir: join(runDir, "rl") }, progress);
    const rl = await measured("after practice", checkpointStep);

    const scores: Stages<Score> = { base, sft, rl };
    const result: RecipeResult = {
      task: name,
      exact: { base: base.exact, sft: sft.exact, rl: rl.exact },
      exactInterval: { base: base.exactInterval, sft: sft.exactInterval, rl: rl.exactInterval },
      reward: { base: base.reward, sft: sft.reward, rl: rl.reward },
      steps: config.rl.steps,
      seconds: seconds(),
      runDir,
    };
    await writeFile(join(runDir, "result.json"), JSON.stringify({ ...result, rewards: scores }, null, 2));
    await writeFile(join(runDir, "steps.jsonl"), points.map((point) => `${JSON.stringify(point)}\n`).join(""));
    await writeFile(join(runDir, "curve.svg"), curve(recipe, config, points));
    printTable(progress.line, recipe, scores, result);
    return result;
  } finally {
    await service.close();
  }
}

/** Runs the SFT jobs and returns the newest checkpoint. */
async function examples<S>(stage: Stage<S>, progress: Progress): Promise<number> {
  const { exact: name } = stage.recipe;
  const { stopAtExact } = stage.config.sft;
  const run = learnFromExamples(stage);
  let loss = NaN;
  for await (const event of run) {
    if (event.type === "step-end") loss = event.metrics["loss"] ?? NaN;
    if (event.type !== "evaluation-end" || event.step === 0) continue;
    const exact = event.metrics[`eval/metric/reward/${name}`] ?? 0;
    progress.update(`examples   job ${event.step}  ${bar(exact / stopAtExact)}  loss ${loss.toFixed(3)}  exact ${exact.toFixed(3)}`, true);
  }
  return (await run.done).checkpointStep;
}

/** Runs the RL steps and returns one point per step and the newest checkpoint. */
async function practice<S>(
  stage: Stage<S>,
  progress: Progress,
): Promise<{ readonly points: readonly Point[]; readonly checkpointStep: number }> {
  const { recipe, config } = stage;
  const points: Point[] = [];
  const run = learnFromPractice(stage);
  for await (const event of run) {
    if (event.type !== "step-end") continue;
    const exact = event.metrics[`metric/reward/${recipe.exact}`] ?? NaN;
    points.push({ step: event.step, reward: event.metrics["reward/mean"] ?? NaN, exact });
    const recent = mean(points.slice(-10).map(({ reward }) => reward));
    const done = points.length;
    progress.update(
      `practice   ${String(done).padStart(3)}/${config.rl.steps}  ${bar(recent)}  reward ${recent.toFixed(3)}  exact ${exact.toFixed(3)}  ${(event.metrics["time/step_seconds"] ?? NaN).toFixed(1)} s a step`,
      done % 10 === 0,
    );
  }
  return { points, checkpointStep: (await run.done).checkpointStep };
}

function curve<S>(recipe: Recipe<S>, { rl, seed }: SftThenRlConfig, points: readonly Point[]): string {
  const smooth = (pick: (point: Point) => number) =>
    points.map((point, at): [number, number] => [point.step, mean(points.slice(Math.max(0, at - 4), at + 1).map(pick))]);
  return lineChart({
    title: `${recipe.environment.name}, ${rl.prompts} problems × ${rl.groupSize} attempts a step, seed ${seed}`,
    xLabel: "RL step (mean of the last five, sampled at temperature 1)",
    range: [0, 1],
    series: [
      { name: "reward", color: "#2563eb", points: smooth((point) => point.reward) },
      { name: recipe.exact, color: "#16a34a", points: smooth((point) => point.exact) },
    ],
  }).svg;
}

function printTable<S>(print: (line: string) => void, recipe: Recipe<S>, scores: Stages<Score>, { seconds, runDir }: RecipeResult): void {
  const names = recipe.environment.rewards.map(({ name }) => name);
  const width = Math.max(8, ...names.map(({ length }) => length)) + 2;
  const cells = (texts: readonly string[]) => texts.map((text) => text.padStart(width)).join("");
  print("");
  print(styled("bold", "held-out".padEnd(16) + cells(["reward", ...names])));
  for (const [title, { reward, rewards }] of [
    ["untrained", scores.base],
    ["after examples", scores.sft],
    ["after practice", scores.rl],
  ] as const)
    print(title.padEnd(16) + cells([reward, ...names.map((name) => rewards[name] ?? NaN)].map((value) => value.toFixed(3))));
  print("");
  scores.base.samples.forEach(({ prompt, wrote }, index) => {
    print(`${prompt}`);
    print(`  untrained: ${wrote}`);
    print(`  trained:   ${styled("green", scores.rl.samples[index]?.wrote ?? "")}`);
  });
  print("");
  print(`${seconds} s; report in ${join(runDir, "rl", "report.html")}, curve in ${join(runDir, "curve.svg")}`);
}

function words({ exact, exactInterval: { low, high }, reward }: Score): string {
  return `exact ${exact.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)})  reward ${reward.toFixed(3)}`;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
