import { type ChildProcess, fork } from "node:child_process";
import { Worker, type WorkerOptions } from "node:worker_threads";
import { packageFile } from "../../src/util/package-file.ts";

/** Replaces `spawnWorker` of `src` in tests: starts the worker from the build of test/global-setup.ts. */
export function spawnWorker(path: string, options: Omit<WorkerOptions, "eval" | "execArgv"> = {}): Worker {
  return new Worker(packageFile(`dist/${path}.js`), { ...options, execArgv: [] });
}

/** Replaces `spawnProcess` of `src` in tests. */
export function spawnProcess(path: string, data: unknown, env: NodeJS.ProcessEnv): ChildProcess {
  return fork(packageFile(`dist/${path}.js`), [JSON.stringify(data)], {
    env,
    execArgv: [],
    serialization: "advanced",
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
}
