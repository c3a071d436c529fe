/** Runs a program of the project with `node`, against an embedded service with temporary data. */
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { onTestFinished } from "vitest";
import { builtProgram } from "./built-program.ts";

/** Options of {@link runProgram}. */
export interface ProgramOptions {
  /** Arguments of the command line. `directory` is a new, empty directory. @default nothing */
  readonly args?: ((directory: string) => readonly string[]) | undefined;
  /** Working directory. @default the program's own directory */
  readonly cwd?: string | undefined;
  readonly timeoutMs: number;
}

/** Its standard output. @throws when it ends with another code than 0, or not in time. */
export async function runProgram(path: string, { args = () => [], cwd, timeoutMs }: ProgramOptions): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-program-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { WHETSTONE_BASE_URL: _, WHETSTONE_API_KEY: __, ...inherited } = process.env;
  const command = [await builtProgram(pathToFileURL(path)), ...args(directory)];
  const { stdout } = await promisify(execFile)(process.execPath, command, {
    cwd: cwd ?? directory,
    env: { ...inherited, WHETSTONE_HOME: join(directory, "home") },
    timeout: timeoutMs,
  });
  return stdout;
}
