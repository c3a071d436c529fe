/** Command `whetstone sweep`: one training run per combination of settings and seed, recorded in one directory. */
import { createHash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Command } from "commander";
import { ConfigError } from "../base/errors.ts";
import { sweep, type CellContext, type CellResult, type SweepResult } from "../lab/experiment/index.ts";
import type { RunResult } from "../training/train/index.ts";
import { changesText, settingChanges } from "../training/train/setting-changes.ts";
import { logLine } from "../base/util/output.ts";
import { integer, modelName } from "./arguments.ts";
import { brokerOfRun, type BrokerFlags } from "./broker.ts";
import { comparisonLines } from "./compare.ts";
import { addDataDir, withService, type ModelName } from "./connected.ts";
import { addEnvironment, loadEnvironment, type EnvironmentOptions } from "./environment-file.ts";
import { EXIT_FAILURE } from "./failure.ts";
import { runName, shortName } from "./names.ts";
import { plural, printResult, type OutputOptions } from "./output.ts";
import { addSettings, settingsOfCommand } from "./settings/options.ts";
import { readJsonObject, withSettings, type NamedValues } from "./settings/read.ts";
import { startRun } from "./settings/run.ts";
import { readSweep } from "./settings/sweep-file.ts";
import { table } from "./table.ts";

/** Options of the command. */
interface SweepOptions extends EnvironmentOptions, OutputOptions, BrokerFlags {
  readonly sweep: string;
  readonly model: ModelName;
  readonly dir?: string;
  readonly parallel: number;
}

/** Max characters of a model's name, as the service accepts it. */
const MAX_NAME = 128;

/** Result of one run of a sweep, which `cell.json` records. */
interface CellValue {
  readonly steps: number;
  readonly checkpoint: number;
  readonly "reward/mean": number | null;
  readonly "eval/reward/mean": number | null;
}

/** Creates the command `whetstone sweep <file>`, which trains a model for every combination of settings and seed. */
export function sweepCommand(): Command {
  const command = addDataDir(addEnvironment(new Command("sweep")))
    .description("train one model per combination of settings and seed, and compare them")
    .requiredOption("--sweep <file>", "JSON file with the settings that differ, and the seeds")
    .requiredOption("--model <project/name>", "prefix of the names of the models", modelName)
    .option(
      "--dir <path>",
      "directory of the sweep; an existing sweep is resumed (default: runs/sweep-<environment>-<model>, or runs/sweep-<model> if the names are equal)",
    )
    .option("--parallel <number>", "max runs at the same time", integer(1), 1);
  return addSettings(command).action(run);
}

/** Runs the command. */
async function run(file: string, options: SweepOptions, command: Command): Promise<void> {
  const { model, parallel } = options;
  const settings = await settingsOfCommand(command);
  const broker = await brokerOfRun(options, settings.workers);
  if (settings.seed !== undefined)
    throw new ConfigError("Expected the seeds of a sweep in `seeds` of its file, got the setting `seed`", { param: "seed" });
  const { grid, isList, seeds } = await readSweep(options.sweep);
  const environment = await loadEnvironment(file, options);
  const dir = options.dir ?? `runs/sweep-${runName(environment.name, model.name)}`;
  await recordSettings(dir, { environment: environment.name, model: shortName(model), settings });
  logLine(`trains models ${shortName(model)}-… in ${dir}`);
  await withService(
    options,
    async (connected) => {
      const train = async ({ name, dir: runDir, settings: varied, seed, signal }: CellContext<NamedValues>): Promise<CellValue> => {
        // A list of combinations is a grid with the one setting `settings`.
        const cellSettings = (isList ? varied["settings"] : varied) as NamedValues;
        const { steps = settings.steps, ...otherSettings } = withSettings(settings, cellSettings);
        const subject = { name: { project: model.project, name: cellModel(model.name, name, seed) }, environment, runDir, broker };
        const trainingRun = await startRun({ ...connected, signal }, subject, { ...otherSettings, steps, seed });
        return valueOf(await trainingRun.done);
      };
      const { signal } = connected;
      const result = await sweep<typeof grid, CellValue>({ dir, grid, seeds, concurrency: parallel, run: train, onCell: report, signal });
      const comparison = comparisonOf(result);
      printResult(options, { dir, cells: result.cells, comparison }, () => lines(result));
      if (result.failed.length > 0) process.exitCode = EXIT_FAILURE;
    },
    "; start the same command again and it resumes",
  );
}

/**
 * Records the settings that all runs of a sweep share, or compares them with the recorded ones: a resumed sweep keeps its finished runs,
 * which must have the same settings as the new ones.
 *
 * @throws ConfigError `E_CONFIG` if the directory holds a sweep with other settings.
 */
async function recordSettings(dir: string, shared: Readonly<Record<string, unknown>>): Promise<void> {
  const path = join(dir, "sweep.json");
  await mkdir(dir, { recursive: true });
  try {
    await writeFile(path, `${JSON.stringify({ version: 1, ...shared }, null, 2)}\n`, { flag: "wx", flush: true });
    return;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  const changes = settingChanges(await readJsonObject(path, "--dir"), JSON.parse(JSON.stringify(shared)) as typeof shared);
  if (changes.length === 0) return;
  throw new ConfigError(`${dir} holds a sweep with other settings: ${changesText(changes)}. Use the same settings, or another --dir`, {
    param: "--dir",
  });
}

/** Returns the name of a cell's model. A name that would be too long has a digest instead of the settings. */
function cellModel(model: string, cell: string, seed: number): string {
  const name = `${model}-${cell}`;
  if (name.length <= MAX_NAME) return name;
  return `${model}-${createHash("sha256").update(cell).digest("hex").slice(0, 8)}_seed-${seed}`;
}

/** Returns the result of a run to record. */
function valueOf({ steps, checkpointStep, metrics, evaluation }: RunResult): CellValue {
  const evalReward = evaluation?.["eval/reward/mean"] ?? null;
  return { steps, checkpoint: checkpointStep, "reward/mean": metrics["reward/mean"] ?? null, "eval/reward/mean": evalReward };
}

/** Logs the end of a run. */
function report({ name, state, error }: CellResult<unknown, unknown>): void {
  logLine(`${name}: ${state}${error === null ? "" : `: ${error.message}`}`);
}

/** Compares the combinations by the reward of the last evaluation, or of the last step; null if a run has failed or has no reward. */
function comparisonOf(result: SweepResult<NamedValues, CellValue>): ReturnType<typeof result.compare> | null {
  const metric = (["eval/reward/mean", "reward/mean"] as const).find((name) =>
    result.cells.every(({ value }) => typeof value?.[name] === "number"),
  );
  const combinations = new Set(result.cells.map(({ settings }) => JSON.stringify(settings)));
  return metric === undefined || combinations.size < 2 ? null : result.compare({ value: metric });
}

/** Lays out the result of a sweep: a row per run, and the comparison of the combinations. */
function* lines(result: SweepResult<NamedValues, CellValue>): Generator<string> {
  const { columns, rows } = result.table();
  const text = (value: unknown) => (value === null || value === undefined ? "" : String(value));
  const filledColumns = columns.filter((name) => rows.some((row) => text(row[name]) !== ""));
  const digits = (value: unknown) =>
    typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(5))) : text(value);
  yield* table(
    rows,
    filledColumns.map((title) => ({
      title,
      cell: (row) => digits(row[title]),
      align: rows.every((row) => typeof row[title] === "number") ? "right" : "left",
    })),
  );
  const comparison = comparisonOf(result);
  if (comparison !== null) {
    yield "";
    yield* comparisonLines(comparison);
  }
  if (result.failed.length > 0) yield `${plural(result.failed.length, "run")} failed; start the same command again to repeat them`;
}
