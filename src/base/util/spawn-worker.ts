/** Start of worker threads and processes, whose modules are `.ts` files in a checkout and `.js` files in the built package. */

import { type ChildProcess, fork } from "node:child_process";
import { Worker, type WorkerOptions } from "node:worker_threads";
import { packageFile } from "./package-file.ts";

/**
 * Starts a worker thread from source or from the built package, as this module itself was loaded.
 *
 * `execArgv` is empty because a worker otherwise inherits the parent's flags, and the flags of a test runner make it fail.
 *
 * @param path - Module below `src`, without its extension, such as `engine/onnx/sampler-worker`.
 */
export function spawnWorker(path: string, options: Omit<WorkerOptions, "eval" | "execArgv"> = {}): Worker {
  if (!import.meta.url.endsWith(".ts")) return new Worker(packageFile(`dist/${path}.js`), { ...options, execArgv: [] });
  const url = packageFile(`src/${path}.ts`).href;
  // Node 20 cannot load a .ts entry in a worker, and `--import tsx` registers on the main thread only: register, then import.
  const tsx = import.meta.resolve("tsx/esm/api");
  const start = `import(${JSON.stringify(tsx)}).then(({ register }) => { register(); return import(${JSON.stringify(url)}); });`;
  return new Worker(start, { ...options, eval: true, execArgv: [] });
}

/**
 * Starts a process of its own from source or from the built package. Messages are copied as between threads, and standard error is a pipe.
 *
 * @param path - Module below `src`, without its extension, such as `engine/onnx/threads/device-worker`.
 * @param data - JSON value, passed as the first argument of the process.
 */
export function spawnProcess(path: string, data: unknown, env: NodeJS.ProcessEnv): ChildProcess {
  const isSource = import.meta.url.endsWith(".ts");
  return fork(packageFile(isSource ? `src/${path}.ts` : `dist/${path}.js`), [JSON.stringify(data)], {
    env,
    execArgv: isSource ? ["--import", import.meta.resolve("tsx")] : [],
    serialization: "advanced",
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
}
