/** Command `whetstone completion`: reads the tree of commands for the scripts of `completion-scripts.ts`. */
import { Argument, Command } from "commander";
import { printText } from "../base/util/output.ts";
import { bashScript, fishScript, type Completed, zshScript } from "./completion-scripts.ts";
import { type OutputOptions, printResult } from "./output.ts";

/** Generator of the script by shell. */
const SHELLS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;

/** Creates the command `whetstone completion <shell>`, which prints a script that completes commands, options and their values. */
export function completionCommand(): Command {
  return new Command("completion")
    .description("print the completion script of a shell; for bash: source <(whetstone completion bash)")
    .addArgument(new Argument("<shell>", "shell of the script").choices(Object.keys(SHELLS)))
    .action(function (this: Command, shell: keyof typeof SHELLS, options: OutputOptions) {
      const script = SHELLS[shell](completedCommands(this.parent ?? this));
      if (options.json === true) printResult(options, { shell, script }, () => []);
      else printText(script);
    });
}

/** Returns every command of the tree as the scripts need it; the program itself has the path "". */
function completedCommands(command: Command, path = ""): Completed[] {
  const help = command.createHelp();
  const subcommands = help.visibleCommands(command).filter((subcommand) => subcommand.name() !== "help");
  const completed: Completed = {
    path,
    subcommands: subcommands.map((subcommand) => ({ name: subcommand.name(), description: subcommand.description() })),
    options: help.visibleOptions(command).map(({ short, long, description, required, optional, argChoices }) => ({
      flags: [short, long].filter((flag) => flag !== undefined),
      description,
      takesValue: required || optional,
      choices: argChoices ?? [],
    })),
    choices: command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
  };
  return [completed, ...subcommands.flatMap((subcommand) => completedCommands(subcommand, `${path} ${subcommand.name()}`.trim()))];
}
