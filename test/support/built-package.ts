/** The package as users install it, without a registry: built JavaScript, package.json and the base model. */
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { basename, join } from "node:path";
import { bundle } from "../../scripts/bundle.js";
import { ROOT } from "../project/files.ts";

export interface BuiltPackage {
  readonly directory: string;
  /** Makes the package a dependency of the project in a directory. */
  readonly install: (project: string) => Promise<void>;
  /** Runs `whetstone` of the project in a directory. */
  readonly whetstone: (project: string, ...args: readonly string[]) => Promise<ProgramResult>;
  readonly remove: () => Promise<void>;
}

export interface ProgramResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program of Node in a directory. A failure to exit within the time limit has the code NaN. */
export function runNode(cwd: string, ...args: readonly string[]): Promise<ProgramResult> {
  return new Promise((done) => {
    execFile(process.execPath, args, { cwd, timeout: 110_000 }, (error, stdout, stderr) => {
      done({ code: error === null ? 0 : Number(error.code ?? Number.NaN), stdout, stderr });
    });
  });
}

/** Builds the package into a directory below the checkout, where Node finds its dependencies in `node_modules`. */
export async function buildPackage(): Promise<BuiltPackage> {
  await mkdir(join(ROOT, "runs"), { recursive: true });
  const directory = await mkdtemp(join(ROOT, "runs", "package-"));
  await bundle(`runs/${basename(directory)}/dist`);
  await cp(join(ROOT, "package.json"), join(directory, "package.json"));
  for (const name of ["models", "src", "template"]) await symlink(join(ROOT, name), join(directory, name));
  return {
    directory,
    async install(project) {
      await mkdir(join(project, "node_modules"), { recursive: true });
      await symlink(directory, join(project, "node_modules", "whetstone"));
    },
    whetstone: (project, ...args) => runNode(project, join("node_modules", "whetstone", "dist", "cli", "main.js"), ...args),
    remove: () => rm(directory, { recursive: true, force: true }),
  };
}
