/** Command `whetstone compare`, and the output of comparisons, which `eval` and `sweep` share. */
import { Command, Option } from "commander";
import { compare, openRuns, type Comparison, type Run, type Subject } from "../lab/experiment/index.ts";
import { runDirs } from "../lab/experiment/open-runs.ts";
import { fraction, integer } from "./arguments.ts";
import { formatInterval, type OutputOptions, printResult } from "./output.ts";
import { table } from "./table.ts";

/** Options of the command. */
interface CompareOptions extends OutputOptions {
  readonly metric?: string;
  readonly by?: "scenario" | "step";
  readonly from?: number;
  readonly to?: number;
  readonly level: number;
  readonly draws: number;
  readonly drawSeed: number;
  readonly svg?: string;
}

/** Adds the options of bootstrap intervals to a command. */
export function addIntervalOptions(command: Command): Command {
  return command
    .option("--level <number>", "confidence level of the intervals", fraction, 0.95)
    .option("--draws <number>", "bootstrap replicates", integer(1), 10_000)
    .option("--draw-seed <number>", "seed of the bootstrap draws", integer(0), 0);
}

/** Creates the command `whetstone compare <run…>`, which compares runs by paired differences with intervals. */
export function compareCommand(): Command {
  return addIntervalOptions(
    new Command("compare")
      .description("compare runs with the first one: paired differences with bootstrap intervals")
      .argument("<run...>", "run directories; `<directory>@<step>` selects the evaluation after so many steps")
      .option("--metric <name>", "metric to compare (default: reward by scenario, reward/mean by step)")
      .addOption(
        new Option("--by <unit>", "unit of the pairs (default: scenario if every run has an evaluation)").choices(["scenario", "step"]),
      )
      .option("--from <step>", "first training step to compare", integer(0))
      .option("--to <step>", "last training step to compare", integer(0))
      .option("--svg <path>", "also draw the differences to a file"),
  ).action(run);
}

/** Runs the command. */
async function run(names: readonly string[], options: CompareOptions): Promise<void> {
  const { metric, by, from, to, level, draws, drawSeed: seed } = options;
  const comparison = await compare(await subjects(names), { metric, by, from, to, level, draws, seed });
  if (options.svg !== undefined) await comparison.chart().write(options.svg);
  printComparison(options, comparison);
}

/** Opens the runs that directories or globs name; `<directory>@<step>` selects an evaluation. */
async function subjects(names: readonly string[]): Promise<(Run | Subject)[]> {
  const selected = await Promise.all(
    names.map(async (name) => {
      const [, pattern = name, step] = /^(.+)@(\d+)$/u.exec(name) ?? [];
      return { dirs: await runDirs(pattern), step: step === undefined ? undefined : Number(step) };
    }),
  );
  const runs = new Map((await openRuns(selected.flatMap(({ dirs }) => dirs))).map((run) => [run.dir, run]));
  return selected.flatMap(({ dirs, step }) =>
    dirs.map((dir) => {
      const run = runs.get(dir) as Run;
      return step === undefined ? run : run.at(step);
    }),
  );
}

/** Prints a comparison as a table, or as JSON. */
export function printComparison(options: OutputOptions, comparison: Comparison): void {
  printResult(options, comparison, () => comparisonLines(comparison));
}

/** Returns the lines of a comparison: a row per run, and the meaning of the columns. */
export function* comparisonLines({ metric, by, baseline, runs, differences }: Comparison): Generator<string> {
  const differenceOf = (name: string) => differences.find((difference) => difference.name === name);
  /** Returns the cell of a run's difference; empty for the baseline. */
  const differenceCell = (name: string) => {
    const difference = differenceOf(name);
    return difference === undefined ? "" : formatInterval(difference);
  };
  yield* table(runs, [
    { title: "run", cell: ({ name }) => name, isWhole: true },
    { title: metric, cell: formatInterval, align: "right" },
    { title: `difference to ${baseline}`, cell: ({ name }) => differenceCell(name), align: "right" },
    { title: `${by}s`, cell: ({ name, count }) => String(differenceOf(name)?.count ?? count), align: "right" },
  ]);
  for (const { name, missing } of runs) if (missing > 0) yield `${name}: ${missing} ${by}s without a value are left out`;
}
