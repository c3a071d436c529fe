import { Worker, type WorkerOptions } from "node:worker_threads";

/**
 * Starts `./name.ts` in source and `./name.js` in the built package, whichever `importer` (an `import.meta.url`) is.
 *
 * `execArgv` is empty on purpose: a worker inherits the parent's otherwise, and a test runner's flags make it fail.
 */
export function spawnWorker(name: string, importer: string, options: Omit<WorkerOptions, "eval" | "execArgv"> = {}): Worker {
  if (!importer.endsWith(".ts")) return new Worker(new URL(`./${name}.js`, importer), { ...options, execArgv: [] });
  const url = new URL(`./${name}.ts`, importer).href;
  // Node 20 cannot load a .ts entry in a worker, and `--import tsx` registers on the main thread only: register, then import.
  const tsx = import.meta.resolve("tsx/esm/api");
  const start = `import(${JSON.stringify(tsx)}).then(({ register }) => { register(); return import(${JSON.stringify(url)}); });`;
  return new Worker(start, { ...options, eval: true, execArgv: [] });
}
