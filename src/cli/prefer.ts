/** Command `whetstone prefer`: training on preference pairs. `dataset-run.ts` has the parts that it shares with `whetstone sft`. */
import { type Command, InvalidArgumentError } from "commander";
import type { PreferenceOptions } from "../library/client/index.ts";
import { readPreferences, uploadPreferences } from "../library/dataset/index.ts";
import { trainPreferences } from "../training/train/index.ts";
import { integer, nonNegative } from "./arguments.ts";
import type { Connected } from "./connected.ts";
import { datasetRunCommand, jobSettings, runOnDataset, uploadOnce, type DatasetCommandOptions } from "./dataset-run.ts";
import { fractionOrFiles } from "./dataset.ts";

/** Options of the command. */
interface PreferCommandOptions extends DatasetCommandOptions {
  readonly validation?: number | string;
  readonly beta?: number;
  readonly labelSmoothing?: number;
  readonly lengthNormalization?: boolean;
  readonly reference: "base" | "start" | number;
}

/** Creates the command `whetstone prefer <file…>`, which trains a model on preference pairs. */
export function preferCommand(): Command {
  const files = "JSON Lines files or globs: pairs in the format of OpenAI or TRL";
  return datasetRunCommand("prefer", "train a model on the preference pairs of JSON Lines files (DPO)", { files, examples: "pairs" })
    .option("--validation <fraction|file>", "validation pairs: a fraction to hold out, or a file", fractionOrFiles)
    .option("--beta <number>", "scale of the log-ratios to the reference policy (default: 0.1)", nonNegative)
    .option("--label-smoothing <number>", "probability that a label is wrong, below 0.5 (default: 0)", nonNegative)
    .option("--length-normalization", "use the mean log-ratio of the tokens of an answer instead of the sum")
    .option("--reference <base|start|step>", "reference policy: base model, checkpoint at the start, or a step", referencePolicy, "base")
    .action(prefer);
}

/** Runs the command. */
function prefer(files: readonly string[], options: PreferCommandOptions): Promise<void> {
  const { name } = options.model;
  return runOnDataset(options, {
    command: "prefer",
    upload: async (connected, runDir) => {
      const train = await upload(connected, files, { name, runDir });
      // A fraction is held out by the service.
      if (typeof options.validation !== "string") return { train };
      return { train, validationDataUrl: await upload(connected, [options.validation], { name: `${name}-validation`, runDir }) };
    },
    start: ({ train, ...validation }, run) => trainPreferences({ ...run, data: train, train: { ...settings(options), ...validation } }),
    metricLabels: {
      loss: "loss",
      "rewards/accuracies": "accuracy",
      "rewards/margins": "margin",
      "validation/loss": "validation loss",
      "validation/rewards/accuracies": "validation accuracy",
    },
  });
}

/** Returns the settings of the training job. */
function settings(options: PreferCommandOptions): PreferenceOptions {
  const { beta, labelSmoothing, lengthNormalization, reference: policy, validation } = options;
  const preferenceSettings = {
    beta,
    labelSmoothing,
    lengthNormalization,
    referenceStep: policy === "base" ? undefined : policy,
    validationSplit: typeof validation === "number" ? validation : undefined,
  };
  const givenSettings = Object.fromEntries(Object.entries(preferenceSettings).filter(([, value]) => value !== undefined));
  return { ...jobSettings(options), ...givenSettings };
}

/** Uploads the pairs of files, unless the run directory has an equal upload. Returns the address of the artifact. */
function upload(
  { service, signal }: Connected,
  files: readonly string[],
  { name, runDir }: { readonly name: string; readonly runDir: string },
): Promise<string> {
  const pairs = readPreferences(files);
  const uploadAs = async (artifact: string) => (await uploadPreferences(service, { name: artifact, train: pairs, signal })).url;
  return uploadOnce(pairs, { prefix: `prefer-${name}`, runDir }, uploadAs);
}

/** Parses `base`, `start` or a step. */
function referencePolicy(text: string): PreferCommandOptions["reference"] {
  if (text === "base" || text === "start") return text;
  if (!/^\d+$/u.test(text)) throw new InvalidArgumentError("Expected base, start or the step of a checkpoint.");
  return integer(0)(text);
}
