/**
 * Builds the JavaScript of the package before the tests. Child processes and worker threads of the tests run this build: loading the
 * modules of `src` one by one through tsx takes four times the CPU time, in each process and in each thread.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";

/** Runs the bundler in a process of its own, because Vite's module runner has no `import.meta.resolve`. */
async function build(): Promise<void> {
  const cwd = join(import.meta.dirname, "..");
  await promisify(execFile)(process.execPath, ["--import", "tsx", "scripts/bundle.js"], { cwd });
}

export default async function setup(project: TestProject): Promise<void> {
  await build();
  project.onTestsRerun(build);
}
