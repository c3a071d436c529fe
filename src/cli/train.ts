/** Command `whetstone train`: reinforcement learning on an environment. */
import { Command } from "commander";
import { eventToDisk } from "../run/events.ts";
import { logLine, printLine } from "../base/util/output.ts";
import { integer, modelName } from "./arguments.ts";
import { brokerOfRun, type BrokerFlags } from "./broker.ts";
import { addDataDir, withService, type ModelName } from "./connected.ts";
import { addEnvironment, type EnvironmentOptions, loadEnvironment } from "./environment-file.ts";
import { runName, shortName } from "./names.ts";
import { type OutputOptions, plural } from "./output.ts";
import { addSettings, settingsOfCommand } from "./settings/options.ts";
import { startRun } from "./settings/run.ts";
import { TRACKER_DESCRIPTION, TRACKER_OPTION, trackerChoice, type TrackerChoice } from "./trackers.ts";

/** Options of the command, without the settings of the run. */
interface TrainOptions extends EnvironmentOptions, OutputOptions, BrokerFlags {
  readonly model: ModelName;
  readonly runDir?: string;
  readonly tracker: readonly TrackerChoice[];
}

/** Creates the command `whetstone train <file>`, which trains a model on an environment by reinforcement learning. */
export function trainCommand(): Command {
  const command = addDataDir(addEnvironment(new Command("train")))
    .description("train a model by reinforcement learning on the environment that a file exports")
    .requiredOption("--model <project/name>", "model to train; created if it does not exist", modelName);
  return addSettings(command)
    .option("--seed <number>", "seed of scenarios and rollouts", integer(0), 0)
    .option(
      "--run-dir <path>",
      "directory of the run; an existing run is resumed (default: runs/<environment>-<model>, or runs/<model> if the names are equal)",
    )
    .option(TRACKER_OPTION, TRACKER_DESCRIPTION, trackerChoice, [])
    .action(train);
}

/** Runs the command. */
async function train(file: string, options: TrainOptions, command: Command): Promise<void> {
  const settings = await settingsOfCommand(command);
  const broker = await brokerOfRun(options, settings.workers);
  const environment = await loadEnvironment(file, options);
  const { model: name } = options;
  const runDir = options.runDir ?? `runs/${runName(environment.name, name.name)}`;
  const trackers = await Promise.all(options.tracker.map((create) => create()));
  logLine(`trains ${shortName(name)} in ${runDir}`);
  await withService(
    options,
    async (connected) => {
      const run = await startRun(connected, { name, environment, runDir, trackers, broker }, settings);
      if (options.json === true) for await (const event of run) printLine(JSON.stringify(eventToDisk(event)));
      const { reason, steps, checkpointStep } = await run.done;
      if (options.json === true) return;
      printLine(
        `${reason} after ${plural(steps, "step")}; checkpoint ${checkpointStep} of ${shortName(name)}; report in ${runDir}/report.html`,
      );
    },
    "; start the same command again and it resumes",
  );
}
