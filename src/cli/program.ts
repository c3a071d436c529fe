/** The command line: the tree of all commands, behavior that they share, and the run of one command line. `main.ts` calls {@link run}. */
import { Command, CommanderError, Help, Option } from "commander";
import { artifactsCommand } from "./artifacts.ts";
import { auditCommand } from "./audit.ts";
import { backupCommand, restoreCommand } from "./backup.ts";
import { compareCommand } from "./compare.ts";
import { datasetCommand } from "./dataset.ts";
import { captureCommand } from "./capture.ts";
import { chatCommand } from "./chat.ts";
import { checkpointsCommand } from "./checkpoints.ts";
import { cleanCommand } from "./clean.ts";
import { completionCommand } from "./completion.ts";
import { doctorCommand } from "./doctor/command.ts";
import { evaluateCommand } from "./evaluate.ts";
import { exportCommand } from "./export.ts";
import { EXIT_USAGE, reportFailure, reportUsageJson } from "./failure.ts";
import { initCommand } from "./init.ts";
import { jobsCommand } from "./jobs.ts";
import { keysCommand } from "./keys.ts";
import { upstreamsCommand } from "./upstreams.ts";
import { modelsCommand } from "./models.ts";
import { JSON_HELP } from "./output.ts";
import { preferCommand } from "./prefer.ts";
import { reportCommand } from "./report.ts";
import { runsCommand } from "./runs.ts";
import { readPackage } from "./package.ts";
import { serveCommand } from "./serve.ts";
import { sftCommand } from "./sft.ts";
import { sweepCommand } from "./sweep.ts";
import { trainCommand } from "./train.ts";
import { uiCommand } from "./ui.ts";
import { validateCommand } from "./validate.ts";
import { verifyCommand } from "./verify.ts";
import { workerCommand } from "./worker.ts";

/** Returns a command and all commands below it. */
export function commandTree(command: Command): Command[] {
  return [command, ...command.commands.flatMap(commandTree)];
}

/** Describes an option in the help of its command. Defaults that are lists or objects are left out, because they are always empty. */
function optionDescription(option: Option): string {
  const { defaultValue } = option;
  if (typeof defaultValue !== "object") return new Help().optionDescription(option);
  const optionWithoutDefault = new Option(option.flags, option.description);
  if (option.argChoices !== undefined) optionWithoutDefault.choices(option.argChoices);
  return new Help().optionDescription(optionWithoutDefault);
}

/**
 * Creates the command line with all commands. Every command without subcommands gets the option `--json`.
 *
 * @param version - Text that `--version` prints.
 */
export function createProgram(version: string): Command {
  const program = new Command("whetstone")
    .description("Train agents: run them, keep what they did, learn from it, run them again.")
    .version(version)
    .showHelpAfterError("(run with --help for the options)");
  for (const command of [
    initCommand(),
    serveCommand(),
    trainCommand(),
    sweepCommand(),
    sftCommand(),
    preferCommand(),
    workerCommand(),
    evaluateCommand(),
    captureCommand(),
    validateCommand(),
    datasetCommand(),
    runsCommand(),
    compareCommand(),
    reportCommand(),
    uiCommand(),
    chatCommand(),
    modelsCommand(),
    checkpointsCommand(),
    jobsCommand(),
    artifactsCommand(),
    keysCommand(),
    upstreamsCommand(),
    exportCommand(),
    verifyCommand(),
    backupCommand(),
    restoreCommand(),
    cleanCommand(),
    auditCommand(),
    doctorCommand(),
    completionCommand(),
  ])
    program.addCommand(command);
  // Commands added with `addCommand` do not inherit the settings of the parent.
  for (const command of commandTree(program)) {
    command.exitOverride().showSuggestionAfterError().configureHelp({ optionDescription });
    if (command.commands.length === 0) command.option("--json", JSON_HELP);
  }
  return program;
}

/**
 * Makes a command with a default subcommand report an unknown subcommand by its name. Without this, the default subcommand takes the name
 * for an excess argument of its own.
 */
function rejectUnknownSubcommands(command: Command): void {
  const names = command.commands.map((subcommand) => subcommand.name());
  if (names.length === 0 || command.parent === null) return;
  command.hook("preSubcommand", ({ args: [name] }, subcommand) => {
    // The default subcommand takes an argument, such as the model of `checkpoints list`.
    if (subcommand.registeredArguments.length > 0) return;
    if (name === undefined || name.startsWith("-") || names.includes(name) || name === "help") return;
    command.error(`error: unknown command '${name}'\n(expected one of: ${names.join(", ")})`, {
      code: "commander.unknownCommand",
      exitCode: EXIT_USAGE,
    });
  });
}

/**
 * Checks a command's required options after its other arguments, so that a misspelled option is reported rather than a missing
 * required option.
 */
function checkRequiredOptionsLast(command: Command): void {
  const required = command.options.filter(({ mandatory }) => mandatory);
  for (const option of required) option.makeOptionMandatory(false);
  command.hook("preAction", () => {
    const missing = required.find((option) => command.getOptionValue(option.attributeName()) === undefined);
    if (missing === undefined) return;
    command.error(`error: required option '${missing.flags}' not specified`, {
      code: "commander.missingMandatoryOptionValue",
      exitCode: EXIT_USAGE,
    });
  });
}

/**
 * Runs one command line. Errors are written to standard error, see {@link reportFailure}; with `--json`, as a JSON object.
 *
 * @param args - Arguments without node and the script.
 * @returns the exit code.
 */
export async function run(args: readonly string[]): Promise<number> {
  const program = createProgram((await readPackage()).version);
  for (const command of commandTree(program)) {
    rejectUnknownSubcommands(command);
    checkRequiredOptionsLast(command);
  }
  // Read from the text, because an invalid command line has no parsed options. Arguments after `--` belong to another program.
  const ownArgs = args.includes("--") ? args.slice(0, args.indexOf("--")) : args;
  const isJson = ownArgs.includes("--json");
  if (isJson) for (const command of commandTree(program)) command.configureOutput({ outputError: () => undefined });
  let runningCommand: Command | null = null;
  program.hook("preAction", (_, command) => {
    runningCommand = command;
  });
  try {
    await program.parseAsync([...args], { from: "user" });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    if (!(error instanceof CommanderError)) return reportFailure(error, isJson, runningCommand);
    if (error.exitCode === 0) return 0;
    // Without --json, commander has already printed the message.
    if (isJson) reportUsageJson(error.message);
    return EXIT_USAGE;
  }
}
