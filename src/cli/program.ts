import { readFile } from "node:fs/promises";
import { Command, CommanderError } from "commander";
import { WhetstoneError } from "../errors.ts";
import { backupCommand, restoreCommand } from "./backup.ts";
import { evaluateCommand } from "./evaluate.ts";
import { serveCommand } from "./serve.ts";
import { trainCommand } from "./train.ts";
import { validateCommand } from "./validate.ts";
import { verifyCommand } from "./verify.ts";
import { traceOf } from "../service/error-text.ts";
import { logLines } from "../util/output.ts";
import { packageFile } from "../util/package-file.ts";

/** Exit codes: 0 success, 1 failure, 2 usage error. */
const FAILED = 1;
const USAGE = 2;

async function version(): Promise<string> {
  const text = await readFile(packageFile("package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

/**
 * Runs one command line. Errors are written to standard error as one line with the remedy.
 *
 * @param args - Arguments without node and the script.
 * @returns the exit code.
 */
export async function run(args: readonly string[]): Promise<number> {
  const program = new Command("whetstone")
    .description("Train agents: run them, keep what they did, learn from it, run them again.")
    .version(await version())
    .showHelpAfterError("(run with --help for the options)");
  for (const command of [
    serveCommand(),
    trainCommand(),
    evaluateCommand(),
    validateCommand(),
    verifyCommand(),
    backupCommand(),
    restoreCommand(),
  ])
    program.addCommand(command);
  // Commands added with `addCommand` do not inherit the settings of the parent.
  for (const command of [program, ...program.commands]) command.exitOverride().showSuggestionAfterError();
  try {
    await program.parseAsync([...args], { from: "user" });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // Commander has already printed the message.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE;
    if (WhetstoneError.isInstance(error)) logLines(`error: ${error.message} (${error.code})`);
    else logLines(traceOf(error));
    return FAILED;
  }
}
