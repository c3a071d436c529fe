/** Confirmation of commands that delete or revoke: `--yes`, or a question on the terminal. */
import { createInterface } from "node:readline/promises";
import type { Command } from "commander";
import { encodeLine, isInteractive, logLine } from "../base/util/output.ts";
import { EXIT_FAILURE, EXIT_USAGE } from "./failure.ts";

/** Option of a command that deletes or revokes. */
export interface ConfirmOptions {
  /** Run without asking. */
  readonly yes?: boolean;
}

/** Adds the option `--yes` to a command that deletes or revokes. */
export function addConfirmation(command: Command): Command {
  return command.option("-y, --yes", "do not ask for confirmation; required without a terminal");
}

/** Streams of the dialog. */
export interface Dialog {
  readonly input: NodeJS.ReadableStream;
  readonly output: NodeJS.WritableStream;
  /** Whether a user can answer. */
  readonly isInteractive: boolean;
}

/**
 * Asks whether to delete or revoke. Any answer but yes makes the exit code of the command 1.
 *
 * @param question - Action in the imperative, such as `Delete model demo/reverse with 3 checkpoints`.
 * @returns true if the answer is yes, or `--yes` was given.
 * @throws CommanderError with exit code 2 if there is neither `--yes` nor a terminal.
 */
export async function confirm(
  command: Command,
  question: string,
  { yes }: ConfirmOptions,
  dialog: Dialog = { input: process.stdin, output: process.stderr, isInteractive: isInteractive() },
): Promise<boolean> {
  if (yes === true) return true;
  if (!dialog.isInteractive) command.error(`error: ${question}? Without a terminal, confirm with --yes`, { exitCode: EXIT_USAGE });
  const lines = createInterface({ input: dialog.input, output: dialog.output });
  try {
    const answer = await lines.question(`${encodeLine(question)}? [y/N] `);
    if (/^y(?:es)?$/iu.test(answer.trim())) return true;
  } finally {
    lines.close();
  }
  logLine("Nothing was changed");
  process.exitCode = EXIT_FAILURE;
  return false;
}
