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

/** Exit codes: 0 done, 1 failed, 2 called wrongly. */
const FAILED = 1;
const USAGE = 2;

async function version(): Promise<string> {
  const text = await readFile(packageFile("package.json"), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

/**
 * Runs one command line. Errors go to standard error as one line that says what to do.
 *
 * @param args - Without node and the script.
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
  // Settings of the parent do not reach commands that were added whole.
  for (const command of [program, ...program.commands]) command.exitOverride().showSuggestionAfterError();
  try {
    await program.parseAsync([...args], { from: "user" });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // Commander has already written what is wrong.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE;
    if (WhetstoneError.isInstance(error)) logLines(`error: ${error.message} (${error.code})`);
    else logLines(traceOf(error));
    return FAILED;
  }
}
