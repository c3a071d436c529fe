/** Command `whetstone init`: writes the project template of this package into a directory. */
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { Command } from "commander";
import { ConfigError } from "../base/errors.ts";
import { isFileSystemError } from "../base/util/file-system-error.ts";
import { packageFile } from "../base/util/package-file.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { completePackage } from "./project-package.ts";

/**
 * Names of files in the package's `template`, by their name in the project. Some names differ, because npm leaves out or renames files such
 * as `.gitignore` when it packs.
 */
const FILES: Readonly<Record<string, string>> = {
  "environment.ts": "environment.ts",
  "environment.test.ts": "environment.test.ts",
  "tsconfig.json": "tsconfig.json",
  "README.md": "readme",
  ".gitignore": "gitignore",
  ".npmrc": "npmrc",
};

/**
 * Creates the command `whetstone init [directory]`, which creates a project with an environment and its test, or adds them to a project.
 */
export function initCommand(): Command {
  return new Command("init")
    .description("create a project: an environment, its test, and the commands that train and evaluate a model")
    .argument("[directory]", "directory of the project; created if it does not exist", ".")
    .action(init);
}

/** Runs the command. Everything is read and checked before the first file is written. */
async function init(directory: string, options: OutputOptions): Promise<void> {
  const root = resolve(directory);
  const files = Object.keys(FILES);
  const existing = await withWriteErrors(root, async () => {
    await mkdir(root, { recursive: true });
    return (await readdir(root)).filter((name) => files.includes(name));
  });
  if (existing.length > 0) {
    throw new ConfigError(`Expected a directory without ${existing.join(", ")}; ${root} has them, and init replaces no file`, {
      param: "directory",
    });
  }
  const contents = new Map<string, string | Uint8Array>();
  for (const [name, source] of Object.entries(FILES)) contents.set(name, await readFile(packageFile(`template/${source}`)));
  const { content: packageContent, keptScripts } = await completePackage(root);
  await withWriteErrors(root, async () => {
    // The flag `wx` makes the call fail if the file was created since the check.
    for (const [name, content] of contents) await writeFile(join(root, name), content, { flag: "wx" });
    await writeFile(join(root, "package.json"), `${JSON.stringify(packageContent, null, 2)}\n`);
  });
  const written = [...files, "package.json"].toSorted();
  printResult(options, { directory: root, files: written, keptScripts }, () => [
    `Created ${root} with ${written.join(", ")}`,
    ...(keptScripts.length === 0 ? [] : [`Kept the scripts of the existing package.json: ${keptScripts.join(", ")}`]),
    "Next, in that directory:",
    "  npm install",
    "  npm test",
    "  npm run train",
  ]);
}

/** Runs a part of the command that works on the project's directory. @throws ConfigError `E_CONFIG` for an error of the file system. */
async function withWriteErrors<T>(root: string, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (cause) {
    if (!isFileSystemError(cause)) throw cause;
    throw new ConfigError(`The project directory '${root}' cannot be written: ${cause.message}. Make it writable, or choose another`, {
      cause,
      param: "directory",
    });
  }
}
