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
