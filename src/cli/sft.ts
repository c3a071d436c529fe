/** Command `whetstone sft`: supervised fine-tuning. `dataset-run.ts` has the parts that it shares with `whetstone prefer`. */
import type { Command } from "commander";
import { uploadDataset, type Dataset } from "../library/dataset/index.ts";
import { trainSft } from "../training/train/index.ts";
import type { Connected } from "./connected.ts";
import { datasetRunCommand, jobSettings, runOnDataset, uploadOnce, type DatasetCommandOptions } from "./dataset-run.ts";
import { fractionOrFiles, trainingData } from "./dataset.ts";

/** Options of the command. */
interface SftCommandOptions extends DatasetCommandOptions {
  readonly validation?: number | string;
}

/** Creates the command `whetstone sft <file…>`, which trains a model on examples. */
export function sftCommand(): Command {
  const files = "JSON Lines files or globs: chat lines, trajectories, groups, prompt-completion, ShareGPT or Alpaca lines";
  return datasetRunCommand("sft", "train a model on the examples of JSON Lines files (supervised fine-tuning)", {
    files,
    examples: "examples",
  })
    .option("--validation <fraction|file>", "validation examples: a fraction to split off, or a file", fractionOrFiles)
    .action(sft);
}

/** Runs the command. */
function sft(files: readonly string[], options: SftCommandOptions): Promise<void> {
  const { name } = options.model;
  return runOnDataset(options, {
    command: "sft",
    upload: async (connected, runDir) => {
      const data = await trainingData(files, options);
      const train = await upload(connected, data.train, { name, runDir });
      if (data.validation === undefined) return { train };
      return { train, validationDataUrl: await upload(connected, data.validation, { name: `${name}-validation`, runDir }) };
    },
    start: ({ train, ...validation }, run) => trainSft({ ...run, data: train, train: { ...jobSettings(options), ...validation } }),
    metricLabels: { loss: "loss", "validation/loss": "validation loss" },
  });
}

/** Uploads examples, unless the run directory has an equal upload. Returns the address of the artifact. */
function upload(
  { service, signal }: Connected,
  examples: Dataset,
  { name, runDir }: { readonly name: string; readonly runDir: string },
): Promise<string> {
  const uploadAs = async (artifact: string) => (await uploadDataset(service, { name: artifact, train: examples, signal })).url;
  return uploadOnce(examples, { prefix: `sft-${name}`, runDir }, uploadAs);
}
