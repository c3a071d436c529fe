import { Worker, type WorkerOptions } from "node:worker_threads";
import { packageFile } from "../../util/package-file.ts";

/**
 * Starts the worker `name` of this folder, from source or built, as this module itself was.
 *
 * `execArgv` is empty on purpose: a worker inherits the parent's otherwise, and a test runner's flags make it fail.
 */
export function spawnWorker(name: string, options: Omit<WorkerOptions, "eval" | "execArgv"> = {}): Worker {
  if (!import.meta.url.endsWith(".ts")) return new Worker(packageFile(`dist/engine/onnx/${name}.js`), { ...options, execArgv: [] });
  const url = packageFile(`src/engine/onnx/${name}.ts`).href;
  // Node 20 cannot load a .ts entry in a worker, and `--import tsx` registers on the main thread only: register, then import.
  const tsx = import.meta.resolve("tsx/esm/api");
  const start = `import(${JSON.stringify(tsx)}).then(({ register }) => { register(); return import(${JSON.stringify(url)}); });`;
  return new Worker(start, { ...options, eval: true, execArgv: [] });
}
