/** A recipe from beginning to end: measure, examples, measure, practice, measure; with progress, a table and a curve. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { connect, type Model, type Service } from "whetstone";
import { lineChart } from "./line-chart.ts";
import { bar, createProgress, type Progress, styled } from "./progress.ts";
import { measure, type Recipe, reinforce, type Score, type SftThenRlConfig, superviseJob } from "./sft-then-rl.ts";

/** A number after each stage. */
export interface Stages<T> {
  /** The base model as it is. */
  readonly base: T;
  /** After the examples. */
  readonly sft: T;
  /** After practice. */
  readonly rl: T;
}

/** What a run found; the last line of `--json`. */
export interface RecipeResult {
  readonly task: string;
  /** Share of right answers. */
  readonly exact: Stages<number>;
  readonly reward: Stages<number>;
  /** RL steps. */
  readonly steps: number;
  readonly seconds: number;
  readonly runDir: string;
}

interface Point {
  readonly step: number;
  readonly reward: number;
  readonly exact: number;
}

/** What the stages share. */
interface Run<S> {
  readonly recipe: Recipe<S>;
  readonly config: SftThenRlConfig;
  readonly service: Service;
  readonly model: Model;
  readonly progress: Progress;
  readonly signal: AbortSignal;
}

/** Runs every stage on an embedded service. Everything it writes lies under `runDir`. */
export async function runRecipe<S>(recipe: Recipe<S>, config: SftThenRlConfig, runDir: string, signal: AbortSignal): Promise<RecipeResult> {
  const started = performance.now();
  const seconds = () => Math.round((performance.now() - started) / 100) / 10;
  const { name } = recipe.environment;
  const progress = createProgress();
  await mkdir(runDir, { recursive: true });
  await writeFile(join(runDir, "config.json"), JSON.stringify(config, null, 2));
  progress.line(styled("bold", `Whetstone recipe: ${name}`) + styled("dim", `  seed ${config.seed}, files in ${runDir}`));

  const service = await connect({ dataDir: join(runDir, "service") });
  try {
    const model = await service.models.create({ project: "recipes", name, baseModel: "whetstone-tiny", signal });
    const run: Run<S> = { recipe, config, service, model, progress, signal };
    const measured = async (stage: string) => {
      const score = await measure(recipe, await model.policy(), "held-out", config, signal);
      progress.line(`${stage.padEnd(16)} ${styled("green", words(score))}  ${styled("dim", `${seconds()} s`)}`);
      return score;
    };
    const base = await measured("untrained");
    await examples(run);
    const sft = await measured("after examples");
    const points = await practice(run);
    const rl = await measured("after practice");

    const scores: Stages<Score> = { base, sft, rl };
    const result: RecipeResult = {
      task: name,
      exact: { base: base.exact, sft: sft.exact, rl: rl.exact },
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

/** Supervised jobs until enough of the validation problems are right. */
async function examples<S>({ recipe, config, service, model, progress, signal }: Run<S>): Promise<void> {
  const { maxJobs, stopAtExact } = config.sft;
  for (let job = 0; job < maxJobs; job++) {
    const loss = await superviseJob(service, model, recipe, config, job, signal);
    const { exact } = await measure(recipe, await model.policy(), "validation", config, signal);
    progress.update(`examples   job ${job + 1}  ${bar(exact / stopAtExact)}  loss ${loss.toFixed(3)}  exact ${exact.toFixed(3)}`, true);
    if (exact >= stopAtExact) return;
  }
}

/** The RL steps; one point each. */
async function practice<S>({ recipe, config, model, progress, signal }: Run<S>): Promise<Point[]> {
  const points: Point[] = [];
  let step = await model.step();
  for (let index = 0; index < config.rl.steps; index++) {
    const before = performance.now();
    const done = await reinforce(model, recipe, config, index, step, signal);
    step = done.step;
    points.push({ step: index, reward: done.reward, exact: done.exact });
    const elapsed = (performance.now() - before) / 1000;
    const recent = mean(points.slice(-10).map(({ reward }) => reward));
    progress.update(
      `practice   ${String(index + 1).padStart(3)}/${config.rl.steps}  ${bar(recent)}  reward ${recent.toFixed(3)}  exact ${done.exact.toFixed(3)}  ${(done.sampledTokens / elapsed).toFixed(0)} sampled tokens/s`,
      (index + 1) % 10 === 0,
    );
  }
  return points;
}

function curve<S>(recipe: Recipe<S>, { rl, seed }: SftThenRlConfig, points: readonly Point[]): string {
  const smooth = (pick: (point: Point) => number) =>
    points.map((point, at): [number, number] => [point.step, mean(points.slice(Math.max(0, at - 4), at + 1).map(pick))]);
  return lineChart({
    title: `${recipe.environment.name}, ${rl.prompts} problems × ${rl.groupSize} attempts a step, seed ${seed}`,
    xLabel: "RL step (mean of the last five, sampled at temperature 1)",
    curves: [
      { name: "reward", color: "#2563eb", points: smooth((point) => point.reward) },
      { name: recipe.exact, color: "#16a34a", points: smooth((point) => point.exact) },
    ],
  });
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
  print(`${seconds} s; curve in ${join(runDir, "curve.svg")}`);
}

function words({ exact, reward }: Score): string {
  return `exact ${exact.toFixed(3)}  reward ${reward.toFixed(3)}`;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
