/**
 * Puts the temporary files of the tests into memory, and builds the JavaScript of the package before the tests. Child processes and worker
 * threads of the tests run this build: loading the modules of `src` one by one through tsx takes four times the CPU time, in each process
 * and in each thread. The build includes packages of many files, which saves another third.
 */
import { execFile } from "node:child_process";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";
import { adapterDriver, missingAdapter } from "./support/adapter.ts";
import { createMemoryDirectory } from "./support/memory-directory.ts";

/** Runs the bundler in a process of its own, because Vite's module runner has no `import.meta.resolve`. */
async function build(): Promise<void> {
  const cwd = join(import.meta.dirname, "..");
  await promisify(execFile)(process.execPath, ["--import", "tsx", "scripts/bundle.js", "--packages"], { cwd });
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  console.log(
    missingAdapter === null
      ? `Tests of the device webgpu run on ${adapterDriver}`
      : `Tests of the device webgpu are skipped: ${missingAdapter}`,
  );
  // Not for the modes of vitest.config.ts, which train for minutes and load real models. The processes of the tests start later.
  const directory = project.config.mode === "test" ? await createMemoryDirectory() : null;
  if (directory !== null) process.env["TMPDIR"] = directory;
  await build();
  project.onTestsRerun(build);
  return async () => {
    if (directory !== null) await rm(directory, { recursive: true, force: true });
  };
}
