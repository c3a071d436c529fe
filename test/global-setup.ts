/**
 * Builds the JavaScript of the package before the tests. Child processes and worker threads of the tests run this build: loading the
 * modules of `src` one by one through tsx takes four times the CPU time, in each process and in each thread.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";
import { adapterDriver, missingAdapter } from "./support/adapter.ts";

/** Runs the bundler in a process of its own, because Vite's module runner has no `import.meta.resolve`. */
async function build(): Promise<void> {
  const cwd = join(import.meta.dirname, "..");
  await promisify(execFile)(process.execPath, ["--import", "tsx", "scripts/bundle.js"], { cwd });
}

export default async function setup(project: TestProject): Promise<void> {
  console.log(
    missingAdapter === null
      ? `Tests of the device webgpu run on ${adapterDriver}`
      : `Tests of the device webgpu are skipped: ${missingAdapter}`,
  );
  await build();
  project.onTestsRerun(build);
}
