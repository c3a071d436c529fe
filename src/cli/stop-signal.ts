/** Interval in milliseconds between two checks of the parent process. */
const PARENT_POLL_MS = 250;

/** Reason to stop: a signal, or the exit of the package manager that started the program. */
export type StopReason = NodeJS.Signals | "parent-exit";

/**
 * Calls `stop` once, at the first SIGINT or SIGTERM, or when the package manager that started this process has exited. A second signal ends
 * the process at once, with the exit code that shells expect.
 *
 * npm starts scripts through a shell and sends SIGTERM only to the shell, which exits without forwarding the signal; the program would
 * continue without its parent. Therefore, in a program started by npm, npx, pnpm or yarn (`npm_lifecycle_event` is set), the exit of the
 * parent counts as a SIGTERM.
 *
 * @returns a function that removes the signal handlers.
 */
export function onStop(stop: (reason: StopReason) => void): () => void {
  let isStopping = false;
  const begin = (reason: StopReason) => {
    clearInterval(poll);
    if (isStopping) {
      if (reason !== "parent-exit") exitNow(reason);
      return;
    }
    isStopping = true;
    stop(reason);
  };
  const onSignal = (signal: NodeJS.Signals) => begin(signal);
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  const parent = process.ppid;
  let poll: NodeJS.Timeout | undefined;
  if (process.env["npm_lifecycle_event"] !== undefined) {
    poll = setInterval(() => {
      if (process.ppid === parent) return;
      // These streams have no reader any more, and a failed write must not end the shutdown.
      for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined);
      begin("parent-exit");
    }, PARENT_POLL_MS).unref();
  }
  return () => {
    clearInterval(poll);
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  };
}

/** Returns the exit code of an unhandled signal: 130 for SIGINT, else 143. */
export function exitCodeOf(reason: StopReason): number {
  return reason === "SIGINT" ? 130 : 143;
}

/** Ends the process with the exit code of an unhandled signal. */
export function exitNow(reason: StopReason): never {
  return process.exit(exitCodeOf(reason));
}
