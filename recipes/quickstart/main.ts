/**
 * The quickstart: a small model learns to write text backwards, on one machine, in under three minutes.
 *
 *   npm run quickstart -- [--seed N] [--shuffle-rewards] [--steps N] [--run-dir DIR] [--json]
 *
 * Starts the embedded service, evaluates the untrained model on held-out problems, trains it briefly on examples, then by reinforcement
 * learning on its own attempts, and evaluates again after each stage.
 */
import { mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { connect } from "whetstone";
import { lineChart } from "whetstone/experiment";
import { bar, createProgress, styled } from "../shared/progress.ts";
import { defaults, type QuickstartConfig } from "./config.ts";
import { measure, reinforce, type Score, scenarios, superviseJob } from "./stages.ts";

interface Point {
  readonly step: number;
  readonly reward: number;
  readonly exact: number;
}

/** Result of a run. */
export interface QuickstartResult {
  readonly task: "reverse-text";
  readonly exact: { readonly base: number; readonly sft: number; readonly rl: number };
  readonly ratio: { readonly base: number; readonly sft: number; readonly rl: number };
  readonly steps: number;
  readonly seconds: number;
  readonly runDir: string;
}

/** Runs all stages. All files are written under `runDir`. */
export async function quickstart(config: QuickstartConfig, runDir: string, signal: AbortSignal): Promise<QuickstartResult> {
  const started = performance.now();
  const seconds = () => (performance.now() - started) / 1000;
  const progress = createProgress();
  await mkdir(runDir, { recursive: true });
  await writeFile(join(runDir, "config.json"), JSON.stringify(config, null, 2));
  progress.line(styled("bold", "Whetstone quickstart: reverse-text") + styled("dim", `  seed ${config.seed}, files in ${runDir}`));

  const service = await connect({ dataDir: join(runDir, "service") });
  try {
    const model = await service.models.create({ project: "quickstart", name: "reverse", baseModel: "whetstone-tiny", signal });
    const heldOut = scenarios("held-out", config.seed, 0, config.heldOut);
    const report = (stage: string, score: Score) =>
      progress.line(
        `${stage.padEnd(16)} exact ${styled("green", score.exact.toFixed(3))}  ratio ${score.ratio.toFixed(3)}  ${styled("dim", `${seconds().toFixed(0)} s`)}`,
      );

    progress.update("Measuring the untrained model …");
    const base = await measure(await model.policy(0), heldOut, signal);
    report("untrained", base);

    let sftJobs = 0;
    for (const validation = scenarios("validation", config.seed, 0, config.sft.validation); sftJobs < config.sft.maxJobs;) {
      const loss = await superviseJob(service, model, config, sftJobs++, signal);
      const { exact } = await measure(await model.policy(), validation, signal);
      progress.update(
        `examples   job ${sftJobs}  ${bar(exact / config.sft.stopAtExact)}  loss ${loss.toFixed(3)}  exact ${exact.toFixed(3)}`,
        true,
      );
      if (exact >= config.sft.stopAtExact) break;
    }
    const sft = await measure(await model.policy(), heldOut, signal);
    report("after examples", sft);

    const points: Point[] = [];
    let step = await model.step();
    for (let index = 0; index < config.rl.steps; index++) {
      const before = performance.now();
      const done = await reinforce(model, config, index, step, signal);
      step = done.step;
      points.push({ step: index, reward: done.reward, exact: done.exact });
      const elapsed = (performance.now() - before) / 1000;
      const rate = (done.sampledTokens + done.trainedTokens) / elapsed;
      const recent = points.slice(-10).reduce((sum, point) => sum + point.reward, 0) / Math.min(10, points.length);
      progress.update(
        `practice   ${String(index + 1).padStart(3)}/${config.rl.steps}  ${bar(recent)}  reward ${recent.toFixed(3)}  exact ${done.exact.toFixed(3)}  ${rate.toFixed(0)} tokens/s`,
        (index + 1) % 10 === 0,
      );
    }
    const rl = await measure(await model.policy(step), heldOut, signal);
    report("after practice", rl);

    const result: QuickstartResult = {
      task: "reverse-text",
      exact: { base: base.exact, sft: sft.exact, rl: rl.exact },
      ratio: { base: base.ratio, sft: sft.ratio, rl: rl.ratio },
      steps: config.rl.steps,
      seconds: Math.round(seconds() * 10) / 10,
      runDir,
    };
    await writeFile(join(runDir, "result.json"), JSON.stringify(result, null, 2));
    await writeFile(join(runDir, "steps.jsonl"), points.map((point) => `${JSON.stringify(point)}\n`).join(""));
    await writeFile(join(runDir, "curve.svg"), curve(config, points));
    printTable(progress.line, { untrained: base, examples: sft, practice: rl }, result);
    return result;
  } finally {
    await service.close();
  }
}

function curve(config: QuickstartConfig, points: readonly Point[]): string {
  const smooth = (pick: (point: Point) => number) =>
    points.map((point, i): [number, number] => {
      const window = points.slice(Math.max(0, i - 4), i + 1);
      return [point.step, window.reduce((sum, each) => sum + pick(each), 0) / window.length];
    });
  return lineChart({
    title: `reverse-text, ${config.rl.prompts} problems × ${config.rl.groupSize} attempts a step, seed ${config.seed}${config.shuffleRewards ? ", rewards shuffled" : ""}`,
    xLabel: "RL step (mean of the last five, sampled at temperature 1)",
    range: [0, 1],
    series: [
      { name: "reward (ratio)", color: "#2563eb", points: smooth((point) => point.reward) },
      { name: "exact answers", color: "#16a34a", points: smooth((point) => point.exact) },
    ],
  }).svg;
}

function printTable(
  print: (line: string) => void,
  stages: Record<"untrained" | "examples" | "practice", Score>,
  result: QuickstartResult,
): void {
  print("");
  print(styled("bold", `${"held-out problems".padEnd(20)}exact   ratio`));
  for (const [name, score] of Object.entries(stages)) print(`${name.padEnd(20)}${score.exact.toFixed(3)}   ${score.ratio.toFixed(3)}`);
  print("");
  stages.practice.samples.forEach(({ prompt, wrote }, i) => {
    print(`${prompt.padEnd(12)} untrained: ${stages.untrained.samples[i]!.wrote}`);
    print(`${"".padEnd(12)} trained:   ${styled("green", wrote)}`);
  });
  print("");
  print(`${result.seconds} s; curve in ${join(result.runDir, "curve.svg")}`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: "string", default: String(defaults.seed) },
      steps: { type: "string", default: String(defaults.rl.steps) },
      "shuffle-rewards": { type: "boolean", default: false },
      "run-dir": { type: "string" },
      json: { type: "boolean", default: false },
    },
  });
  const whole = (name: "seed" | "steps", least: number) => {
    const value = Number(values[name]);
    if (!Number.isInteger(value) || value < least)
      throw new RangeError(`Expected --${name} to be a whole number from ${least}, got "${values[name]}"`);
    return value;
  };
  const config: QuickstartConfig = {
    ...defaults,
    seed: whole("seed", 0),
    shuffleRewards: values["shuffle-rewards"],
    rl: { ...defaults.rl, steps: whole("steps", 1) },
  };
  const runDir = resolve(values["run-dir"] ?? join("runs", `quickstart-${new Date().toISOString().replaceAll(/[:.]/g, "-")}`));
  const controller = new AbortController();
  process.once("SIGINT", () => controller.abort(new Error("stopped by the user")));
  const result = await quickstart(config, runDir, controller.signal);
  if (values.json) console.log(JSON.stringify(result));
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
});
