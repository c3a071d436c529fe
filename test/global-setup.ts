/**
 * Builds the JavaScript of the package before the tests. Child processes and worker threads of the tests run this build: loading the
 * modules of `src` one by one through tsx takes four times the CPU time, in each process and in each thread.
 */
import type { TestProject } from "vitest/node";
import { bundle } from "../scripts/bundle.js";

export default async function setup(project: TestProject): Promise<void> {
  await bundle("dist");
  project.onTestsRerun(async () => void (await bundle("dist")));
}
