/** What the README shows as a program is one: every block runs as it stands, against an embedded service of its own. */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { runProgram } from "../support/run-program.ts";
import { blocks, ROOT } from "./files.ts";

const RUN_TIMEOUT_MS = 180_000;

/** Where a module finds the package by its own name: inside the project, in the directory for what runs leave behind. */
const RUNS = join(ROOT, "runs");

/** Runs the code as a module and gives what it prints. */
async function run(code: string): Promise<string> {
  await mkdir(RUNS, { recursive: true });
  const directory = await mkdtemp(join(RUNS, "readme-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const path = join(directory, "block.ts");
  await writeFile(path, code);
  return runProgram(path, { timeoutMs: RUN_TIMEOUT_MS });
}

describe("README.md", () => {
  const programs = blocks("README.md");

  it("has programs", () => {
    expect(programs.length).toBeGreaterThan(0);
  });

  it.each(programs)(
    "the program at line $line runs and prints something",
    async ({ code }) => {
      expect((await run(code)).trim()).not.toBe("");
    },
    RUN_TIMEOUT_MS,
  );

  it("would fail on a program that fails", async () => {
    await expect(run('import { connect } from "whetstone";\nawait connect({ baseUrl: "nowhere" });\n')).rejects.toThrow(
      /E_CONFIG|http or https/,
    );
  });
});
