/** Exit codes, and the report of a failed command on standard error. */
import type { Command } from "commander";
import { HttpError } from "../library/client/errors.ts";
import { WhetstoneError } from "../base/errors.ts";
import { traceOf } from "../service/common/logger.ts";
import { logLine, logLines } from "../base/util/output.ts";
import { exitCodeOf, type StopReason } from "./stop-signal.ts";
import { messageOf } from "../base/util/values.ts";

/** Exit code of a command that failed, or that found a problem. */
export const FAILED = 1;
/** Exit code of an invalid command line. */
export const USAGE = 2;

/** Error of a command that a signal has stopped. */
export class InterruptedError extends Error {
  override readonly name = "AbortError";
  /** Exit code that shells expect after the signal, see {@link exitCodeOf}. */
  readonly exitCode: number;

  constructor(reason: StopReason, hint = "") {
    super(`stopped by ${reason === "parent-exit" ? "the end of its parent process" : reason}${hint}`);
    this.exitCode = exitCodeOf(reason);
  }
}

/** Error as a command reports it; with `--json`, the value of `error` in the JSON document. */
interface Failure {
  /** A code of docs/reference/errors.md; `E_USAGE` or `E_INTERRUPTED` for errors that only commands have. */
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
}

function logJson(error: Failure): void {
  logLine(JSON.stringify({ error }));
}

/** Reports a usage error with `--json`; without it, commander has already printed the message. */
export function reportUsage(message: string, isJson: boolean): void {
  if (isJson) logJson({ code: "E_USAGE", message: message.replace(/^error: /u, ""), param: null });
}

/**
 * Returns code and message of an error as a user of commands reads them. An error that the service classified has the service's own
 * message, without the request.
 */
function describe(error: WhetstoneError, command: Command | null): Failure {
  const { code, message, param } = error;
  const isClassified = error instanceof HttpError && typeof error.serviceCode === "string" && error.serviceCode.startsWith("E_");
  if (isClassified && error.reason !== null && !error.retryable)
    return { code: error.serviceCode as string, message: withFlags(error.reason, command), param };
  return { code, message: withFlags(message, command), param };
}

/**
 * Replaces options of the library in a message by the flags that the command has for them: `from` by `--from`, `by: "step"` by `--by step`.
 */
function withFlags(message: string, command: Command | null): string {
  return message.replaceAll(/`(\w+)(?:: "?(\w+)"?)?`/gu, (text, name: string, value?: string) => {
    const flag = command?.options.find((option) => option.attributeName() === name)?.long;
    return flag === undefined || flag === null ? text : `\`${value === undefined ? flag : `${flag} ${value}`}\``;
  });
}

/**
 * Writes an error to standard error: one line with the remedy, or the trace of an unexpected error; with `--json`, a JSON object.
 *
 * @param command - Command that ran, whose flags the message names; null if none ran.
 * @returns the exit code of the command.
 */
export function reportFailure(error: unknown, isJson: boolean, command: Command | null = null): number {
  if (error instanceof InterruptedError) {
    if (isJson) logJson({ code: "E_INTERRUPTED", message: error.message, param: null });
    else logLine(error.message);
    return error.exitCode;
  }
  if (WhetstoneError.isInstance(error)) {
    const failure = describe(error, command);
    if (isJson) logJson(failure);
    else logLines(`error: ${failure.message} (${failure.code})`);
  } else if (isJson) {
    logJson({ code: "E_INTERNAL", message: messageOf(error), param: null });
  } else {
    logLines(traceOf(error));
  }
  return FAILED;
}
