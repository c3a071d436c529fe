/** Runs a recipe as described in its README. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect } from "vitest";
import { builtProgram } from "../support/built-program.ts";
import type { RecipeResult } from "../../recipes/shared/run-recipe.ts";

/** Result of a recipe run. */
export interface RecipeRun {
  readonly result: RecipeResult;
  /** Contents of the files that it wrote, by name. */
  readonly files: Readonly<Record<string, string>>;
}

/** Options for two short steps, which test that a recipe runs, not that it learns. */
export const TINY = ["--steps", "2", "--sft-jobs", "1", "--sft-steps", "2", "--prompts", "4", "--attempts", "4", "--held-out", "16"];

const LEFT = ["config.json", "result.json", "steps.jsonl", "curve.svg", "rl/report.html", "rl/trajectories/train/000000.jsonl"];

/** Options of {@link runRecipe}. */
export interface RunRecipeOptions {
  /** @default 110000 */
  readonly timeoutMs?: number;
  /** Additional environment variables. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** Runs `recipes/<name>/main.ts --json` in a temporary directory, which is removed afterwards. */
export async function runRecipe(
  name: string,
  args: readonly string[],
  { timeoutMs = 110_000, environment = {} }: RunRecipeOptions = {},
): Promise<RecipeRun> {
  const runDir = await mkdtemp(join(tmpdir(), `whetstone-${name}-`));
  const root = join(import.meta.dirname, "..", "..");
  const main = await builtProgram(new URL(`../../recipes/${name}/main.ts`, import.meta.url));
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [main, "--json", "--run-dir", runDir, ...args], {
      cwd: root,
      timeout: timeoutMs,
      env: { ...process.env, ...environment },
    });
    const result = JSON.parse(stdout.trim().split("\n").at(-1)!) as RecipeResult;
    const files = Object.fromEntries(await Promise.all(LEFT.map(async (file) => [file, await readFile(join(runDir, file), "utf8")])));
    return { result, files };
  } finally {
    await rm(runDir, { recursive: true, force: true });
  }
}

/** Expects the files and results of a run with two RL steps, independent of learning. */
export function checkRun(name: string, { result, files }: RecipeRun): void {
  expect(result).toMatchObject({ task: name, steps: 2 });
  for (const value of [...Object.values(result.exact), ...Object.values(result.reward)]) {
    expect(value).toBeGreaterThanOrEqual(0);
    expect(value).toBeLessThanOrEqual(1);
  }
  expect(JSON.parse(files["result.json"]!)).toMatchObject(result);
  expect(files["steps.jsonl"]!.trim().split("\n")).toHaveLength(2);
  expect(files["curve.svg"]).toContain("<polyline");
}
