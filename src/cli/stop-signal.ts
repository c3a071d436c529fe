/** Milliseconds between two looks at the parent process. */
const PARENT_POLL_MS = 250;

/** Reason for a program to stop: a signal, or the end of the package manager that started it. */
export type StopReason = NodeJS.Signals | "parent-exit";

/**
 * Calls `stop` once, at the first SIGINT or SIGTERM, or when the package manager that started this process is gone. A further signal ends
 * the process at once, with the exit code that shells expect.
 *
 * npm starts scripts through a shell and passes a SIGTERM on to the shell alone, which ends without passing it on: the program would run on
 * without its parent. So in a program that npm, npx, pnpm or yarn started (`npm_lifecycle_event` is set), the end of the parent counts as
 * a SIGTERM.
 *
 * @returns a function that stops listening.
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
      // Nobody reads these any more, and a failed write must not end the shutdown.
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

/** Ends the process as an unhandled signal would. */
export function exitNow(reason: StopReason): never {
  return process.exit(reason === "SIGINT" ? 130 : 143);
}
