/**
 * Parts of the commands that train on a dataset, `sft` and `prefer`: common options, uploads that a resumed run finds again, and the
 * result.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Command, Option } from "commander";
import type { Model } from "../library/client/index.ts";
import { digestOf } from "../library/dataset/keys.ts";
import { eventToDisk } from "../run/events.ts";
import { RUN_CONFIG_FILE } from "../run/files.ts";
import type { TrainingRun, Tracker } from "../training/train/index.ts";
import { logLine, printLine } from "../base/util/output.ts";
import { BASE_FORMS, integer, modelName, nonNegative } from "./arguments.ts";
import { openModel, serviceCommand, withService, type Connected, type ModelName } from "./connected.ts";
import { shortName } from "./names.ts";
import { type OutputOptions, plural } from "./output.ts";
import { TRACKER_DESCRIPTION, TRACKER_OPTION, trackerChoice, type TrackerChoice } from "./trackers.ts";

/** Options that both commands have. */
export interface DatasetCommandOptions extends OutputOptions {
  readonly model: ModelName;
  readonly base: string;
  readonly loraRank?: number;
  readonly epochs: number;
  readonly batchSize?: number;
  readonly learningRate?: number;
  readonly schedule: "constant" | "linear" | "cosine";
  readonly warmupRatio?: number;
  readonly seed: number;
  readonly runDir?: string;
  readonly tracker: readonly TrackerChoice[];
}

/** Settings of a job that the common options determine. */
interface JobSettings {
  readonly epochs: number;
  readonly shuffleSeed: number;
  readonly learningRateSchedule: DatasetCommandOptions["schedule"];
  readonly batchSize?: number;
  readonly learningRate?: number;
  readonly warmupRatio?: number;
}

/**
 * Creates a command that trains on the files of its argument.
 *
 * @param nouns - `files`: description of the argument. `examples`: noun for the lines of the files, in the plural.
 */
export function datasetRunCommand(
  name: string,
  description: string,
  { files, examples }: { readonly files: string; readonly examples: string },
): Command {
  return serviceCommand(name, description)
    .argument("<file...>", files)
    .requiredOption("--model <project/name>", "model to train; created if it does not exist", modelName)
    .option("--base <model>", `base model of a new model: ${BASE_FORMS}`, "whetstone-tiny")
    .option("--lora-rank <number>", "train an adapter of this rank in a new model (default: train all weights)", integer(1))
    .option("--epochs <number>", `passes over the ${examples}`, integer(1), 1)
    .option("--batch-size <number>", `${examples} per optimizer step (default: the service's)`, integer(1))
    .option(
      "--learning-rate <number>",
      "learning rate, with a schedule its peak (default: by size of the model and kind of training; printed)",
      nonNegative,
    )
    .addOption(new Option("--schedule <name>", "learning-rate schedule").choices(["constant", "linear", "cosine"]).default("constant"))
    .option("--warmup-ratio <number>", "fraction of the steps with rising learning rate", nonNegative)
    .option("--seed <number>", `seed of the order of ${examples} and of the split`, integer(0), 0)
    .option("--run-dir <path>", `directory of the run; an existing run is resumed (default: runs/${name}-<model>)`)
    .option(TRACKER_OPTION, TRACKER_DESCRIPTION, trackerChoice, []);
}

/** Returns the settings of the job that the common options determine. */
export function jobSettings({ epochs, batchSize, learningRate, schedule, warmupRatio, seed }: DatasetCommandOptions): JobSettings {
  const optional = { batchSize, learningRate, warmupRatio };
  const givenOptions = Object.fromEntries(Object.entries(optional).filter(([, value]) => value !== undefined));
  return { epochs, shuffleSeed: seed, learningRateSchedule: schedule, ...givenOptions };
}

/** Steps of a command: the upload of its data, and the start of its run. */
export interface DatasetRunSteps<T> {
  /** Name of the command. */
  readonly command: string;
  readonly upload: (connected: Connected, runDir: string) => Promise<T>;
  readonly start: (data: T, run: StartedWith) => TrainingRun;
  /** Labels of the metrics of the result that are printed, by name of the metric. */
  readonly metricLabels: Readonly<Record<string, string>>;
}

/** Arguments of a run that do not depend on the kind of training. */
export interface StartedWith {
  readonly model: Model;
  readonly runDir: string;
  readonly trackers: readonly Tracker[];
  readonly signal: AbortSignal;
}

/** Uploads the data, trains, and prints the events or the result. */
export async function runOnDataset<T>(
  options: DatasetCommandOptions,
  { command, upload, start, metricLabels }: DatasetRunSteps<T>,
): Promise<void> {
  const { model: name, base, loraRank, runDir = `runs/${command}-${name.name}` } = options;
  const trackers = await Promise.all(options.tracker.map((create) => create()));
  logLine(`trains ${shortName(name)} in ${runDir}`);
  await withService(
    options,
    async (connected) => {
      const data = await upload(connected, runDir);
      const model = await openModel(connected, name, base, loraRank);
      const run = start(data, { model, runDir, trackers, signal: connected.signal });
      if (options.json === true) for await (const event of run) printLine(JSON.stringify(eventToDisk(event)));
      const { reason, checkpointStep, metrics } = await run.done;
      if (options.json === true) return;
      const values = Object.entries(metricLabels).flatMap(([key, label]) =>
        metrics[key] === undefined ? [] : `, ${label} ${metrics[key].toFixed(4)}`,
      );
      const steps = plural(metrics["gradient_steps"] ?? 0, "gradient step");
      printLine(
        `${reason} after ${steps}; checkpoint ${checkpointStep} of ${shortName(name)}${values.join("")}; report in ${runDir}/report.html`,
      );
    },
    "; start the same command again and it resumes",
  );
}

/**
 * Uploads examples and returns their address. The name of the artifact contains a digest of the examples. If the run directory already
 * trains on the same examples, their recorded address is returned: a second upload would have another address, and the run could not be
 * resumed.
 *
 * @param prefix - Beginning of the artifact's name.
 * @param upload - Uploads the examples under a name and returns the address.
 */
export async function uploadOnce(
  examples: AsyncIterable<unknown>,
  { prefix, runDir }: { readonly prefix: string; readonly runDir: string },
  upload: (name: string) => Promise<string>,
): Promise<string> {
  const hash = createHash("sha256");
  for await (const example of examples) hash.update(digestOf(JSON.stringify(example)));
  const artifact = `${prefix}-${hash.digest("hex").slice(0, 12)}`;
  const runConfig = await readFile(join(runDir, RUN_CONFIG_FILE), "utf8").catch(() => "");
  const addressPattern = new RegExp(`"(artifact:///[^"]*/${artifact.replaceAll(".", "\\.")}:v\\d+)"`, "u");
  const recordedAddress = addressPattern.exec(runConfig)?.[1];
  return recordedAddress ?? upload(artifact);
}
