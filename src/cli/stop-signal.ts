/** Signals that stop a command, also in programs that a package manager has started. */

/** Interval in milliseconds between two checks of the parent process. */
const PARENT_POLL_MS = 250;

/** Signals that stop a command. A closed terminal sends SIGHUP. */
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Reason to stop: a signal, or the exit of the package manager that started the program. */
export type StopReason = NodeJS.Signals | "parent-exit";

/**
 * Calls `stop` once, at the first SIGINT, SIGTERM or SIGHUP (unless `onHangUp` is given), or when the package manager that started this
 * process has exited. A second signal ends the process at once, by the signal itself.
 *
 * npm starts scripts through a shell and sends SIGTERM only to the shell, which exits without forwarding the signal; the program would
 * continue without its parent. Therefore, in a program started by npm, npx, pnpm or yarn (`npm_lifecycle_event` is set), the exit of the
 * parent counts as a SIGTERM.
 *
 * @param onHangUp - Called at each SIGHUP instead of stopping. @default SIGHUP stops
 * @returns a function that removes the signal handlers and ends the checks of the parent.
 */
export function onStop(stop: (reason: StopReason) => void, onHangUp?: () => void): () => void {
  let isStopping = false;
  /** Stops at the first reason, and exits at a second signal. */
  const stopOrExit = (reason: StopReason) => {
    clearInterval(parentPoll);
    if (!isStopping) {
      isStopping = true;
      stop(reason);
    } else if (reason !== "parent-exit") {
      exitNow(reason);
    }
  };
  const onSignal = (signal: NodeJS.Signals) => {
    if (signal === "SIGHUP" && onHangUp !== undefined) return onHangUp();
    if (signal === "SIGHUP") ignoreClosedOutput();
    stopOrExit(signal);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  const parent = process.ppid;
  let parentPoll: NodeJS.Timeout | undefined;
  if (process.env["npm_lifecycle_event"] !== undefined) {
    parentPoll = setInterval(() => {
      if (process.ppid === parent) return;
      ignoreClosedOutput();
      stopOrExit("parent-exit");
    }, PARENT_POLL_MS).unref();
  }
  return () => {
    clearInterval(parentPoll);
    for (const signal of SIGNALS) process.off(signal, onSignal);
  };
}

/** Ignores errors of standard output and error, so that the shutdown continues when nobody reads them any more. */
function ignoreClosedOutput(): void {
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined);
}

/** Returns the exit code of an unhandled signal: 130 for SIGINT, 129 for SIGHUP, else 143. */
export function exitCodeOf(reason: StopReason): number {
  if (reason === "SIGINT") return 130;
  return reason === "SIGHUP" ? 129 : 143;
}

/**
 * Ends the process by the signal itself, as if it were not handled. `process.exit` would first stop the threads of the engine, and a thread
 * that is inside of native code then aborts the process with a core dump.
 */
export function exitNow(reason: StopReason): never {
  const signal = reason === "parent-exit" ? "SIGTERM" : reason;
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // Waits for the signal. The first process of a container receives only signals that it handles.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  return process.exit(exitCodeOf(reason));
}
