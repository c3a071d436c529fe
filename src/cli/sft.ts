import type { Command } from "commander";
import { uploadDataset, type Dataset } from "../library/dataset/index.ts";
import { trainSft } from "../training/train/index.ts";
import type { Connected } from "./connected.ts";
import { datasetRunCommand, jobSettings, runOnDataset, uploadOnce, type DatasetCommandOptions } from "./dataset-run.ts";
import { fractionOrFiles, trainingData } from "./dataset.ts";

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

function sft(files: readonly string[], options: SftCommandOptions): Promise<void> {
  const { name } = options.model;
  return runOnDataset(options, {
    command: "sft",
    upload: async (connected, runDir) => {
      const data = await trainingData(files, options);
      const train = await uploaded(connected, data.train, { name, runDir });
      return { train, validation: data.validation && (await uploaded(connected, data.validation, { name: `${name}-validation`, runDir })) };
    },
    start: ({ train, validation }, run) => {
      const validationDataUrl = validation === undefined ? {} : { validationDataUrl: validation };
      return trainSft({ ...run, data: train, train: { ...jobSettings(options), ...validationDataUrl } });
    },
    shown: { loss: "loss", "validation/loss": "validation loss" },
  });
}

function uploaded(
  { service, signal }: Connected,
  examples: Dataset,
  { name, runDir }: { readonly name: string; readonly runDir: string },
): Promise<string> {
  const upload = async (artifact: string) => (await uploadDataset(service, { name: artifact, train: examples, signal })).url;
  return uploadOnce(examples, { prefix: `sft-${name}`, runDir }, upload);
}
