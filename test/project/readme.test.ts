/** Runs every program of the README as it stands, each against its own embedded service, and compares the output with the README. */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { runProgram } from "../support/run-program.ts";
import { blocks, read, ROOT } from "./files.ts";

const RUN_TIMEOUT_MS = 180_000;

/** Directory for runs; modules below it find the package by its name. */
const RUNS = join(ROOT, "runs");

/** Runs the code as a module and returns its output. */
async function run(code: string): Promise<string> {
  await mkdir(RUNS, { recursive: true });
  const directory = await mkdtemp(join(RUNS, "readme-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const path = join(directory, "block.ts");
  await writeFile(path, code);
  return runProgram(path, { timeoutMs: RUN_TIMEOUT_MS });
}

/** Returns the first `text` block between a program and the next one; null if there is none. */
function shownOutput(code: string): string | null {
  const text = read("README.md");
  const after = text.slice(text.indexOf(code) + code.length).split("```ts\n")[0] as string;
  return /```text\n([\s\S]*?)```/u.exec(after)?.[1]?.trim() ?? null;
}

describe("README.md", () => {
  const programs = blocks("README.md");

  it("contains programs", () => {
    expect(programs.length).toBeGreaterThan(0);
  });

  it.each(programs)(
    "the program at line $line prints the output shown below it, or nothing if none is shown",
    async ({ code }) => {
      const printed = (await run(code)).trim();
      const shown = shownOutput(code);
      if (shown === null) expect(printed).not.toBe("");
      else expect(printed).toBe(shown);
    },
    RUN_TIMEOUT_MS,
  );

  it("reports a program that fails", async () => {
    await expect(run('import { connect } from "whetstone";\nawait connect({ baseUrl: "nowhere" });\n')).rejects.toThrow(
      /E_CONFIG|http or https/,
    );
  });
});
