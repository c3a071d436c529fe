import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Command, Option } from "commander";
import type { SftOptions, Service } from "../library/client/index.ts";
import { uploadDataset, type Dataset } from "../library/dataset/index.ts";
import { digestOf } from "../library/dataset/keys.ts";
import { eventToDisk } from "../run/events.ts";
import { RUN_CONFIG_FILE } from "../run/files.ts";
import { trainSft } from "../training/train/index.ts";
import { logLine, printLine } from "../base/util/output.ts";
import { BASE_FORMS, integer, modelName, nonNegative } from "./arguments.ts";
import { serviceCommand, openModel, withService, type ModelName } from "./connected.ts";
import { fractionOrFiles, trainingData } from "./dataset.ts";
import { shortName } from "./names.ts";
import { type OutputOptions, plural } from "./output.ts";
import { TRACKER_DESCRIPTION, TRACKER_OPTION, trackerChoice, type TrackerChoice } from "./trackers.ts";

interface SftCommandOptions extends OutputOptions {
  readonly model: ModelName;
  readonly base: string;
  readonly loraRank?: number;
  readonly epochs: number;
  readonly batchSize?: number;
  readonly learningRate?: number;
  readonly schedule: "constant" | "linear" | "cosine";
  readonly warmupRatio?: number;
  readonly validation?: number | string;
  readonly seed: number;
  readonly runDir?: string;
  readonly tracker: readonly TrackerChoice[];
}

/** Creates the command `whetstone sft <file…>`, which trains a model on examples. */
export function sftCommand(): Command {
  return serviceCommand("sft", "train a model on the examples of JSON Lines files (supervised fine-tuning)")
    .argument("<file...>", "JSON Lines files or globs: chat lines, trajectories, groups, prompt-completion, ShareGPT or Alpaca lines")
    .requiredOption("--model <project/name>", "model to train; created if it does not exist", modelName)
    .option("--base <model>", `base model of a new model: ${BASE_FORMS}`, "whetstone-tiny")
    .option("--lora-rank <number>", "train an adapter of this rank in a new model (default: train all weights)", integer(1))
    .option("--epochs <number>", "passes over the examples", integer(1), 1)
    .option("--batch-size <number>", "examples per optimizer step (default: the service's)", integer(1))
    .option(
      "--learning-rate <number>",
      "learning rate, with a schedule its peak (default: by size of the model and kind of training; printed)",
      nonNegative,
    )
    .addOption(new Option("--schedule <name>", "learning-rate schedule").choices(["constant", "linear", "cosine"]).default("constant"))
    .option("--warmup-ratio <number>", "fraction of the steps with rising learning rate", nonNegative)
    .option("--validation <fraction|file>", "validation examples: a fraction to split off, or a file", fractionOrFiles)
    .option("--seed <number>", "seed of the order of examples and of the split", integer(0), 0)
    .option("--run-dir <path>", "directory of the run; an existing run is resumed (default: runs/sft-<model>)")
    .option(TRACKER_OPTION, TRACKER_DESCRIPTION, trackerChoice, [])
    .action(sft);
}

async function sft(files: readonly string[], options: SftCommandOptions): Promise<void> {
  const { model: name, base, loraRank, runDir = `runs/sft-${name.name}` } = options;
  const trackers = await Promise.all(options.tracker.map((create) => create()));
  logLine(`trains ${shortName(name)} in ${runDir}`);
  await withService(
    options,
    async (connected) => {
      const { service, signal } = connected;
      const data = await trainingData(files, options);
      const train = await uploaded(service, data.train, { name: name.name, runDir, signal });
      const validation = data.validation && (await uploaded(service, data.validation, { name: `${name.name}-validation`, runDir, signal }));
      const model = await openModel(connected, name, base, loraRank);
      const run = trainSft({ model, data: train, train: settings(options, validation), runDir, trackers, signal });
      if (options.json === true) for await (const event of run) printLine(JSON.stringify(eventToDisk(event)));
      const { reason, checkpointStep, metrics } = await run.done;
      if (options.json === true) return;
      const number = (name: string, shown = name) => (metrics[name] === undefined ? "" : `, ${shown} ${metrics[name].toFixed(4)}`);
      const losses = `${number("loss")}${number("validation/loss", "validation loss")}`;
      printLine(
        `${reason} after ${plural(metrics["gradient_steps"] ?? 0, "gradient step")}; checkpoint ${checkpointStep} of ${shortName(name)}${losses}; report in ${runDir}/report.html`,
      );
    },
    "; start the same command again and it resumes",
  );
}

/** Returns the settings of the training job. */
function settings(options: SftCommandOptions, validationDataUrl: string | undefined): SftOptions {
  const { epochs, batchSize, learningRate, schedule, warmupRatio, seed } = options;
  const given = { batchSize, learningRate, warmupRatio, validationDataUrl };
  const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  return { epochs, shuffleSeed: seed, learningRateSchedule: schedule, ...defined };
}

/**
 * Uploads examples and returns their address. The name of the artifact contains a digest of the examples. If the run directory already
 * trains on the same examples, their recorded address is returned: a second upload would have another address, and the run could not be
 * resumed.
 */
async function uploaded(
  service: Service,
  examples: Dataset,
  { name, runDir, signal }: { readonly name: string; readonly runDir: string; readonly signal: AbortSignal },
): Promise<string> {
  const hash = createHash("sha256");
  for await (const example of examples) hash.update(digestOf(JSON.stringify(example)));
  const artifact = `sft-${name}-${hash.digest("hex").slice(0, 12)}`;
  const text = await readFile(join(runDir, RUN_CONFIG_FILE), "utf8").catch(() => "");
  const known = new RegExp(`"(artifact:///[^"]*/${artifact.replaceAll(".", "\\.")}:v\\d+)"`, "u").exec(text)?.[1];
  return known ?? (await uploadDataset(service, { name: artifact, train: examples, signal })).url;
}
