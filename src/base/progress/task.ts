/** Progress display of one task: in the block of a terminal, as plain lines, or none. */

import { Writable } from "node:stream";
import { ArgumentError, ConfigError } from "../errors.ts";
import { encodeLine, standardStreams } from "../util/output.ts";
import { TerminalBlock } from "./terminal.ts";

/** Interval in milliseconds of the plain lines of a task. */
const PLAIN_INTERVAL_MS = 30_000;

/** Text of a task in progress. */
export interface ProgressView {
  /** Returns the lines for the block of a terminal. */
  readonly block: () => readonly string[];
  /** Returns the state as one line, printed every 30 seconds without a terminal. */
  readonly line: () => string;
}

/** Display of one task. */
export interface ProgressTask {
  /** Whether the task has lines on a terminal. */
  readonly isTerminal: boolean;
  /** Prints a line that stays. */
  readonly print: (line: string) => void;
  /** Shows the changed state soon; without effect without a terminal. */
  readonly refresh: () => void;
  /** Ends the display with a last line; later calls have no effect. */
  readonly end: (line: string) => void;
}

/** Display of a task that shows nothing. */
const SILENT: ProgressTask = { isTerminal: false, print: () => undefined, refresh: () => undefined, end: () => undefined };

/** Stream of a display, and whether the stream is a terminal. */
interface Sink {
  readonly stream: Writable;
  readonly isTerminal: boolean;
}

/**
 * Checks the option `progress` and the environment variable `WHETSTONE_PROGRESS`.
 *
 * @throws ArgumentError `E_ARGUMENT` if the option is neither a boolean nor a stream.
 * @throws ConfigError `E_CONFIG` for another value of the variable than `0`, `1` or `plain`.
 */
export function checkProgress(progress: boolean | Writable | undefined): void {
  sinkOf(progress);
}

/** Starts the display of a task on the stream that the option `progress` selects. */
export function startProgress(progress: boolean | Writable | undefined, view: ProgressView): ProgressTask {
  const sink = sinkOf(progress);
  if (sink === null) return SILENT;
  return sink.isTerminal ? terminalTask(sink.stream, view) : plainTask(sink.stream, view);
}

/** Starts a task in the block at the bottom of a terminal. */
function terminalTask(stream: Writable, view: ProgressView): ProgressTask {
  const block = TerminalBlock.of(stream);
  // The block knows tasks by their function, so that each task has a new one, even if two tasks share a view.
  const lines = () => view.block();
  block.add(lines);
  return {
    isTerminal: true,
    print: (line) => block.print([line]),
    refresh: () => block.refresh(),
    end: (line) => block.remove(lines, [line]),
  };
}

/** Starts a task that prints plain lines. */
function plainTask(stream: Writable, view: ProgressView): ProgressTask {
  const print = (line: string) => void stream.write(`${encodeLine(line)}\n`);
  const timer = setInterval(() => print(view.line()), PLAIN_INTERVAL_MS).unref();
  let isOver = false;
  return {
    isTerminal: false,
    print,
    refresh: () => undefined,
    end(line) {
      if (isOver) return;
      isOver = true;
      clearInterval(timer);
      print(line);
    },
  };
}

/** Returns the stream that the option and the environment variable select; null for no display. */
function sinkOf(progress: boolean | Writable | undefined): Sink | null {
  if (progress !== undefined && typeof progress !== "boolean" && !(progress instanceof Writable)) {
    throw new ArgumentError(`Expected \`progress\` to be true, false or a stream to write to, got ${typeof progress}`, {
      param: "progress",
    });
  }
  const variable = process.env["WHETSTONE_PROGRESS"] ?? "";
  if (!["", "0", "1", "plain"].includes(variable)) {
    throw new ConfigError(
      `Expected WHETSTONE_PROGRESS to be 0 (nothing), 1 (a display on a terminal, else lines) or plain (lines), got ${JSON.stringify(variable)}`,
      { param: "WHETSTONE_PROGRESS" },
    );
  }
  if (progress === false || (progress === undefined && variable === "0")) return null;
  const { stderr } = standardStreams();
  const stream = progress instanceof Writable ? progress : stderr;
  const isTty = (stream as { readonly isTTY?: boolean }).isTTY === true;
  return { stream, isTerminal: isTty && variable !== "plain" && (stream !== stderr || canMoveCursor()) };
}

/** Whether escape sequences move the cursor: they do not on a dumb terminal and in the log of a CI service. */
function canMoveCursor(): boolean {
  const { TERM: terminal, CI: ci = "" } = process.env;
  return terminal !== "dumb" && ["", "0", "false"].includes(ci);
}
