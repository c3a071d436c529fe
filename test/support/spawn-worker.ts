import { type ChildProcess, fork } from "node:child_process";
import { Worker, type WorkerOptions } from "node:worker_threads";
import { packageFile } from "../../src/base/util/package-file.ts";
import { workThread } from "./work-threads.ts";

/** Function that workers of one program call before they run it. */
export interface Prelude {
  /** Program, as `spawnWorker` takes it. It must have no data of its own. */
  readonly path: string;
  /** Source of the function. */
  readonly source: string;
  /** Arguments of the function. */
  readonly data: readonly unknown[];
}

let prelude: Prelude | null = null;

/** Sets the prelude of the workers that start from now on; null = none. */
export function setPrelude(next: Prelude | null): void {
  prelude = next;
}

/** Replaces `spawnWorker` of `src` in tests: starts the worker from the build of test/global-setup.ts. */
export function spawnWorker(path: string, options: Omit<WorkerOptions, "eval" | "execArgv"> = {}): Worker {
  const program = packageFile(`dist/${path}.js`);
  if (prelude?.path !== path) {
    const start = () => new Worker(program, { ...options, execArgv: [] });
    return path === "service/request-worker" ? workThread(start) : start();
  }
  const start = `(${prelude.source})(...require("node:worker_threads").workerData); import(${JSON.stringify(program.href)});`;
  return new Worker(start, { ...options, eval: true, execArgv: [], workerData: prelude.data });
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
