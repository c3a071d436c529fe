import { Worker, type WorkerOptions } from "node:worker_threads";
import { packageFile } from "../../src/util/package-file.ts";

/** Replaces `spawnWorker` of `src` in tests: starts the worker from the build of test/global-setup.ts. */
export function spawnWorker(path: string, options: Omit<WorkerOptions, "eval" | "execArgv"> = {}): Worker {
  return new Worker(packageFile(`dist/${path}.js`), { ...options, execArgv: [] });
}
