/** Exit codes, and the report of a failed command on standard error. */
import type { Command } from "commander";
import { HttpError } from "../library/client/errors.ts";
import { WhetstoneError } from "../base/errors.ts";
import { traceOf } from "../service/common/logger.ts";
import { logLine, logLines } from "../base/util/output.ts";
import { exitCodeOf, type StopReason } from "./stop-signal.ts";
import { messageOf } from "../base/util/values.ts";

/** Exit code of a command that failed, or that found a problem. */
export const EXIT_FAILURE = 1;
/** Exit code of an invalid command line. */
export const EXIT_USAGE = 2;

/** Error of a command that a signal has stopped. */
export class InterruptedError extends Error {
  /** Marks the error as an abort, which must not be retried or reported as a failure. The error is the reason of the aborted signal. */
  override readonly name = "AbortError";
  /** Exit code that shells expect after the signal, see {@link exitCodeOf}. */
  readonly exitCode: number;

  /** @param hint - Continuation of the message, such as `; start it again and it resumes`. */
  constructor(reason: StopReason, hint = "") {
    super(`stopped by ${reason === "parent-exit" ? "the end of its parent process" : reason}${hint}`);
    this.exitCode = exitCodeOf(reason);
  }
}

/** Error as a command reports it; with `--json`, the value of `error` in the JSON document. */
interface Failure {
  /** Code of docs/reference/errors.md; `E_INTERNAL` for an unexpected error; `E_USAGE` or `E_INTERRUPTED`, which only commands have. */
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
}

/** Writes a failure to standard error, as the JSON document of `--json`. */
function logJson(error: Failure): void {
  logLine(JSON.stringify({ error }));
}

/** Writes a usage error of commander as a JSON object, without the prefix `error: ` that commander gives to its messages. */
export function reportUsageJson(message: string): void {
  logJson({ code: "E_USAGE", message: message.replace(/^error: /u, ""), param: null });
}

/**
 * Returns code and message of an error as a user of commands reads them. An error of this package's service has the service's own code and
 * message, without the request. A retryable error, such as a 503, keeps the request: its URL shows which service to check.
 */
function describe(error: WhetstoneError, command: Command | null): Failure {
  const { code, message, param } = error;
  if (error instanceof HttpError && error.reason !== null && isWhetstoneCode(error.serviceCode) && !error.retryable)
    return { code: error.serviceCode, message: withFlags(error.reason, command), param };
  return { code, message: withFlags(message, command), param };
}

/** Whether the code of a service's error is one of this package, not of another server. */
function isWhetstoneCode(code: HttpError["serviceCode"]): code is string {
  return typeof code === "string" && code.startsWith("E_");
}

/** Option in a message, alone or with a value, in backticks: a name, `name: value` or `name: "value"`. */
const OPTION = /`(\w+)(?:: "?(\w+)"?)?`/gu;

/**
 * Replaces options of the library in a message by the flags that the command has for them: `from` by `--from`, `by: "step"` by `--by step`.
 */
function withFlags(message: string, command: Command | null): string {
  return message.replaceAll(OPTION, (text, name: string, value?: string) => {
    const flag = command?.options.find((option) => option.attributeName() === name)?.long ?? undefined;
    if (flag === undefined) return text;
    return value === undefined ? `\`${flag}\`` : `\`${flag} ${value}\``;
  });
}

/**
 * Writes an error to standard error: its message and code, or the trace of an unexpected error; with `--json`, a JSON object.
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
  // Not `instanceof`: a file of the user may have imported another copy of the package.
  if (WhetstoneError.isInstance(error)) {
    const failure = describe(error, command);
    if (isJson) logJson(failure);
    else logLines(`error: ${failure.message} (${failure.code})`);
  } else if (isJson) {
    logJson({ code: "E_INTERNAL", message: messageOf(error), param: null });
  } else {
    logLines(traceOf(error));
  }
  return EXIT_FAILURE;
}
