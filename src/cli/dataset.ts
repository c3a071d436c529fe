/** Command `whetstone dataset`: examines, cleans, splits and uploads training data. */
import { Command, Option } from "commander";
import { readExamples, uploadDataset, validateExamples, writeDataset, writeTrajectories, type Dataset } from "../library/dataset/index.ts";
import { DataError } from "../base/errors.ts";
import { formatBytes } from "../base/util/units.ts";
import { fraction, integer } from "./arguments.ts";
import { serviceCommand, withService, type ConnectionFlags } from "./connected.ts";
import { datasetStatistics, statisticsLines } from "./dataset-statistics.ts";
import { EXIT_FAILURE } from "./failure.ts";
import { type OutputOptions, plural, printResult } from "./output.ts";

/** Max number of invalid lines that `dataset validate` prints; `--json` has all. */
const MAX_PRINTED = 20;

/** Parses a fraction; returns any other text unchanged, as a path or a glob. */
export function fractionOrFiles(text: string): number | string {
  return /^[\d.]+$/u.test(text) ? fraction(text) : text;
}

/** Creates the command `whetstone dataset` with its subcommands. */
export function datasetCommand(): Command {
  const files = "JSON Lines files or globs: trajectories, groups, chat lines, prompt-completion, ShareGPT or Alpaca lines, also .gz";
  const identityOption = () =>
    new Option("--by <identity>", "criterion of equality").choices(["messages", "trajectory"]).default("messages" as const);
  const seedOption = ["--seed <number>", "seed of the assignment"] as const;
  return new Command("dataset")
    .description("examine, clean, split and upload training data")
    .addCommand(
      new Command("stats")
        .description("count examples, messages, tokens, rewards and duplicates")
        .argument("<file...>", files)
        .action(stats),
    )
    .addCommand(
      new Command("validate")
        .description("check every line; exits with 1 if a line is invalid")
        .argument("<file...>", files)
        .action(validate),
    )
    .addCommand(
      new Command("split")
        .description("write <out>/train and <out>/validation without a common example")
        .argument("<file...>", files)
        .requiredOption("--out <directory>", "directory to write")
        .option("--validation <fraction>", "expected fraction of validation examples", fraction, 0.05)
        .option(...seedOption, integer(0), 0)
        .addOption(identityOption())
        .action(split),
    )
    .addCommand(
      new Command("dedupe")
        .description("write the examples without duplicates; the first of equal examples is kept")
        .argument("<file...>", files)
        .requiredOption("--out <file>", "file to write; compressed if the name ends in .gz")
        .addOption(identityOption())
        .action(dedupe),
    )
    .addCommand(
      serviceCommand("upload", "upload examples as a dataset for supervised training")
        .argument("<file...>", files)
        .requiredOption("--name <name>", "name of the artifact")
        .option("--project <name>", "project of the artifact", "datasets")
        .option("--validation <fraction|file>", "validation examples: a fraction to split off, or a file", fractionOrFiles)
        .option(...seedOption, integer(0), 0)
        .action(upload),
    );
}

async function stats(files: readonly string[], options: OutputOptions): Promise<void> {
  printResult(options, await datasetStatistics(readExamples(files)), statisticsLines);
}

async function validate(files: readonly string[], options: OutputOptions): Promise<void> {
  const report = await validateExamples(files);
  const { lines, examples, formats, invalid } = report;
  printResult(options, { valid: invalid.length === 0, ...report }, function* () {
    for (const { file, line, message } of invalid.slice(0, MAX_PRINTED)) yield `${file}:${line}: ${message}`;
    if (invalid.length > MAX_PRINTED) yield `… and ${invalid.length - MAX_PRINTED} more`;
    for (const [format, count] of Object.entries(formats)) yield `${format}: ${plural(count, "line")}`;
    yield `${lines} lines, ${examples} examples, ${invalid.length} invalid lines`;
  });
  if (invalid.length > 0) process.exitCode = EXIT_FAILURE;
}

/** Options of `dataset split`. */
interface SplitOptions extends OutputOptions {
  readonly out: string;
  readonly validation: number;
  readonly seed: number;
  readonly by: "messages" | "trajectory";
}

async function split(files: readonly string[], options: SplitOptions): Promise<void> {
  const { out, by, validation, seed } = options;
  const examples = readExamples(files);
  const parts = examples.split({ validation, seed, by });
  for (const name of ["train", "validation"] as const) {
    if (!(await isEmpty(parts[name]))) continue;
    throw new DataError(
      `Expected examples in both parts, but none of ${plural(await count(examples), "example")} fell into ${name}. Choose another --validation fraction (now ${validation}) or --seed (now ${seed}), or give more examples`,
      { param: "--validation" },
    );
  }
  const written = [];
  for (const name of ["train", "validation"] as const) {
    const { path, count: size, sizeBytes } = await writeDataset(`${out}/${name}`, parts[name]);
    written.push({ path, examples: size, sizeBytes });
  }
  printResult(options, written, (all) =>
    all.map(({ path, examples, sizeBytes: size }) => `${path}: ${examples} examples, ${formatBytes(size)}`),
  );
}

/** Whether a dataset has no example. Reads at most one. */
async function isEmpty(dataset: Dataset): Promise<boolean> {
  for await (const _ of dataset) return false;
  return true;
}

/** Reads a dataset and returns the number of its examples. */
async function count(dataset: Dataset): Promise<number> {
  let examples = 0;
  for await (const _ of dataset) examples++;
  return examples;
}

async function dedupe(files: readonly string[], options: OutputOptions & Pick<SplitOptions, "out" | "by">): Promise<void> {
  let read = 0;
  const counted: Dataset = readExamples(files).filter(() => {
    read++;
    return true;
  });
  const { path, count: written, sizeBytes } = await writeTrajectories(options.out, counted.dedupe({ by: options.by }));
  printResult(options, { path, read, written, duplicates: read - written, sizeBytes }, function* (result) {
    yield `${path}: ${result.written} of ${read} examples, ${result.duplicates} duplicates left out, ${formatBytes(sizeBytes)}`;
  });
}

/** Options of `dataset upload`. */
interface UploadOptions extends ConnectionFlags {
  readonly name: string;
  readonly project: string;
  readonly validation?: number | string;
  readonly seed: number;
}

async function upload(files: readonly string[], options: UploadOptions): Promise<void> {
  await withService(options, async ({ service, signal }) => {
    const { name, project } = options;
    const { train, validation } = await trainingData(files, options);
    const { url, validationUrl } = await uploadDataset(service, {
      name,
      project,
      train,
      ...(validation === undefined ? {} : { validation }),
      signal,
    });
    printResult(options, { url, validationUrl }, function* () {
      yield url;
      if (validationUrl !== null) yield `${validationUrl} (validation)`;
    });
  });
}

/**
 * Reads training examples, and splits off or reads validation examples.
 *
 * @throws DataError `E_DATA` for a file of validation examples that does not exist.
 */
export async function trainingData(
  files: readonly string[],
  { validation, seed }: Pick<UploadOptions, "validation" | "seed">,
): Promise<{ readonly train: Dataset; readonly validation?: Dataset }> {
  const examples = readExamples(files);
  if (validation === undefined) return { train: examples };
  if (typeof validation === "number") return examples.split({ validation, seed });
  return { train: examples, validation: readExamples(validation) };
}
