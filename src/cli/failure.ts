/** Exit codes, and the report of a failed command on standard error. */
import { WhetstoneError } from "../errors.ts";
import { traceOf } from "../service/error-text.ts";
import { logLine, logLines } from "../util/output.ts";
import { exitCodeOf, type StopReason } from "./stop-signal.ts";

/** Exit code of a command that failed, or that found a problem. */
export const FAILED = 1;
/** Exit code of an invalid command line. */
export const USAGE = 2;

/** Error of a command that a signal has stopped. */
export class InterruptedError extends Error {
  override readonly name = "AbortError";
  /** Exit code that shells expect: 130 for SIGINT, else 143. */
  readonly exitCode: number;

  constructor(reason: StopReason, hint = "") {
    super(`stopped by ${reason === "parent-exit" ? "the end of its parent process" : reason}${hint}`);
    this.exitCode = exitCodeOf(reason);
  }
}

/** An error in JSON, the value of `error` in the document that a failed command writes with `--json`. */
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
 * Writes an error to standard error: one line with the remedy, or the trace of an unexpected error; with `--json`, a JSON object.
 *
 * @returns the exit code of the command.
 */
export function reportFailure(error: unknown, isJson: boolean): number {
  if (error instanceof InterruptedError) {
    if (isJson) logJson({ code: "E_INTERRUPTED", message: error.message, param: null });
    else logLine(error.message);
    return error.exitCode;
  }
  if (WhetstoneError.isInstance(error)) {
    const { code, message, param } = error;
    if (isJson) logJson({ code, message, param });
    else logLines(`error: ${message} (${code})`);
  } else if (isJson) {
    logJson({ code: "E_INTERNAL", message: error instanceof Error ? error.message : String(error), param: null });
  } else {
    logLines(traceOf(error));
  }
  return FAILED;
}
