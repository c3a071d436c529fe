import { Command } from "commander";
import type { JsonObject } from "../schema/index.ts";
import { eventToDisk } from "../train/events.ts";
import { trainRl } from "../train/index.ts";
import { printLine } from "../util/output.ts";
import { BASE_FORMS, integer, jsonObject, modelName, positive, TEMPLATE_KWARGS_DESCRIPTION, TEMPLATE_KWARGS_OPTION } from "./arguments.ts";
import { openModel, withService, type ModelName } from "./connected.ts";
import { addEnvironment, type EnvironmentOptions, loadEnvironment } from "./environment-file.ts";
import type { OutputOptions } from "./output.ts";
import { TRACKER_DESCRIPTION, TRACKER_OPTION, trackerChoice, type TrackerChoice } from "./trackers.ts";

interface TrainOptions extends EnvironmentOptions, OutputOptions {
  readonly model: ModelName;
  readonly base: string;
  readonly loraRank?: number;
  readonly steps: number;
  readonly scenarios: number;
  readonly groupSize: number;
  readonly learningRate?: number;
  readonly offPolicy: number;
  readonly evalEvery?: number;
  readonly refill?: number;
  /** Number of scenarios to sample from; true without a number. */
  readonly curriculum?: number | true;
  readonly replacements: number;
  readonly seed: number;
  readonly concurrency: number;
  readonly chatTemplateKwargs?: JsonObject;
  readonly runDir?: string;
  readonly tracker: readonly TrackerChoice[];
}

/** Creates the command `whetstone train <file>`, which trains a model on an environment by reinforcement learning. */
export function trainCommand(): Command {
  return addEnvironment(new Command("train"))
    .description("train a model by reinforcement learning on the environment that a file exports")
    .requiredOption("--model <project/name>", "model to train; created if it does not exist", modelName)
    .option("--base <model>", `base model of a new model: ${BASE_FORMS}`, "whetstone-tiny")
    .option("--lora-rank <number>", "train an adapter of this rank in a new model (default: train all weights)", integer(1))
    .option("--steps <number>", "training steps of the whole run", integer(1), 20)
    .option("--scenarios <number>", "scenarios per step", integer(1), 16)
    .option("--group-size <number>", "rollouts per scenario", integer(2), 8)
    .option("--learning-rate <number>", "learning rate (default: the service's)", positive)
    .option("--off-policy <number>", "max steps by which rollouts may be ahead of training", integer(0), 0)
    .option("--eval-every <number>", "steps between evaluations on the eval scenarios (default: none)", integer(1))
    .option("--refill <groups>", "replace groups with equal rewards; max groups that a step samples (default: no replacement)", integer(1))
    .option(
      "--curriculum [scenarios]",
      "sample scenarios by pass rate; number of scenarios to sample from if the environment generates them (default: in order)",
      integer(1),
    )
    .option("--replacements <number>", "max replacements of a failed rollout", integer(0), 0)
    .option("--seed <number>", "seed of scenarios and rollouts", integer(0), 0)
    .option("--concurrency <number>", "max concurrent rollouts", integer(1), 64)
    .option(TEMPLATE_KWARGS_OPTION, TEMPLATE_KWARGS_DESCRIPTION, jsonObject)
    .option("--run-dir <path>", "directory of the run; an existing run is resumed (default: runs/<environment>-<model>)")
    .option(TRACKER_OPTION, TRACKER_DESCRIPTION, trackerChoice, [])
    .action(train);
}

async function train(file: string, options: TrainOptions): Promise<void> {
  const environment = await loadEnvironment(file, options);
  const runDir = options.runDir ?? `runs/${environment.name}-${options.model.name}`;
  const trackers = await Promise.all(options.tracker.map((create) => create()));
  await withService(async (connected) => {
    const model = await openModel(connected, options.model, options.base, options.loraRank);
    const { signal } = connected;
    const run = trainRl({
      model,
      environment,
      runDir,
      signal,
      trackers,
      steps: options.steps,
      scenariosPerStep: options.scenarios,
      groupSize: options.groupSize,
      maxStepsOffPolicy: options.offPolicy,
      seed: options.seed,
      concurrency: options.concurrency,
      chatTemplateKwargs: options.chatTemplateKwargs,
      replacements: options.replacements,
      ...(options.refill === undefined ? {} : { refill: { maxGroups: options.refill } }),
      ...(options.curriculum === undefined ? {} : { curriculum: options.curriculum === true ? {} : { pool: options.curriculum } }),
      ...(options.learningRate === undefined ? {} : { train: { learningRate: options.learningRate } }),
      ...(options.evalEvery === undefined ? {} : { evaluation: { every: options.evalEvery } }),
    });
    if (options.json === true) for await (const event of run) printLine(JSON.stringify(eventToDisk(event)));
    const { reason, steps, checkpointStep } = await run.done;
    if (options.json === true) return;
    printLine(`${reason} after ${steps} steps; checkpoint ${checkpointStep}; report in ${runDir}/report.html`);
  }, "; start the same command again and it resumes");
}
