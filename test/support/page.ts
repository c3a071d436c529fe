/**
 * Runs the code of a documentation page as its reader would: in an empty project that has the built package installed.
 *
 * The first line of a program, a block of TypeScript, is a comment with its file name and its command, `// a.mts: npx tsx a.mts`; with the
 * file name alone, the block is a module that later programs import. A block of shell commands is run as one script, without installations.
 * The output is compared with the next block of text; there, `…` stands for any text. The comment `<!-- not run: reason -->` before a block
 * excludes it. A block with the comment `<!-- keeps running -->` is started, must print the next block of text, and runs until the end of
 * the page. The port 8321 stands for a free port.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { basename, delimiter, join } from "node:path";
import { promisify } from "node:util";
import { bundle } from "../../scripts/bundle.js";
import { ROOT } from "../project/files.ts";

const COMMAND_TIMEOUT_MS = 240_000;
/** Time for a program that keeps running to print its text. */
const START_TIMEOUT_MS = 60_000;
/** Port in pages. */
const PAGE_PORT = "8321";
/** Commands of an installation, which {@link createProject} replaces. */
const INSTALLATION = /^(?:mkdir [\w-]+ && cd [\w-]+ && )?(?:npm init -y|npm install [\w@/ -]+)$/u;

/** Block of code of a page. */
export interface PageBlock {
  readonly line: number;
  /** File of the block; null for shell commands. */
  readonly file: string | null;
  readonly code: string;
  /** Commands to run; empty for a module. */
  readonly commands: readonly string[];
  /** Output that the page shows; empty if it shows none. */
  readonly shown: string;
  /** Reason why the block is not run. */
  readonly excluded: string | null;
  /** Whether the block runs until the end of the page. */
  readonly keepsRunning: boolean;
}

/** Returns the blocks of TypeScript and of shell commands of a page. */
export function pageBlocks(text: string): PageBlock[] {
  const fences = [...text.matchAll(/(?:<!-- (?:not run: ([^\n]*)|(keeps running)) -->\n)?^```(ts|sh|text)\n(.*?)^```$/gmsu)];
  return fences.flatMap(([whole, excluded = null, running, language, code = ""], index) => {
    if (language === "text") return [];
    const next = fences[index + 1];
    const line = text.slice(0, fences[index]!.index).split("\n").length + (excluded === null && running === undefined ? 0 : 1);
    const [, file = null, command = ""] = language === "ts" ? (/^\/\/ ([\w.-]+\.mts)(?:: (.*))?\n/u.exec(code) ?? []) : [];
    if (language === "ts" && file === null && excluded === null)
      throw new Error(`Line ${line}: expected \`// name.mts: command\` in\n${whole}`);
    const lines = language === "ts" ? [command] : code.split("\n").map((each) => each.replace(/\s+#.*$/u, ""));
    const commands = lines.filter((each) => each !== "" && !INSTALLATION.test(each));
    return [
      { line, file, code, commands, shown: next?.[3] === "text" ? (next[4] ?? "") : "", excluded, keepsRunning: running !== undefined },
    ];
  });
}

/** Whether an output is the shown one, in which `…` stands for any text. */
export function isShown(printed: string, shown: string): boolean {
  const pattern = shown.trim().split("…").map(escape).join(".*");
  return new RegExp(`^${pattern}$`, "su").test(printed.trim());
}

function escape(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/gu, "\\$&");
}

/** Empty project of a reader. */
export interface Project {
  /** Writes the block's file and runs its commands; returns their output. */
  readonly run: (block: PageBlock) => Promise<string>;
  readonly remove: () => Promise<void>;
}

/** Built package in a directory of its own, where it finds its dependencies. */
export async function buildPackage(): Promise<{ readonly directory: string; readonly remove: () => Promise<void> }> {
  await mkdir(join(ROOT, "runs"), { recursive: true });
  const directory = await mkdtemp(join(ROOT, "runs", "package-"));
  await bundle(`runs/${basename(directory)}/dist`);
  await cp(join(ROOT, "package.json"), join(directory, "package.json"));
  for (const name of ["models", "src"]) await symlink(join(ROOT, name), join(directory, name));
  return { directory, remove: () => rm(directory, { recursive: true, force: true }) };
}

/** Options of {@link createProject}. */
export interface ProjectOptions {
  /** Paths of files that the project contains. @default none */
  readonly files?: readonly string[];
  /** Time that the commands of a block may take. @default 240000 */
  readonly timeoutMs?: number;
}

/** Creates a project as `npm init -y` and `npm install` do, with the given package and the checkout's dependencies. */
export async function createProject(
  packageDirectory: string,
  { files = [], timeoutMs = COMMAND_TIMEOUT_MS }: ProjectOptions = {},
): Promise<Project> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-page-"));
  const modules = join(directory, "node_modules");
  const commands = join(directory, "commands");
  await Promise.all([mkdir(modules), mkdir(commands)]);
  await writeFile(join(directory, "package.json"), JSON.stringify({ name: "page", version: "1.0.0", type: "commonjs" }));
  const installed = (await readdir(join(ROOT, "node_modules"))).filter((name) => !name.startsWith("."));
  await Promise.all(installed.map((name) => symlink(join(ROOT, "node_modules", name), join(modules, name))));
  await symlink(packageDirectory, join(modules, "whetstone"));
  await Promise.all(files.map((path) => symlink(path, join(directory, basename(path)))));
  // `npx` without its own start, which takes longer than most programs.
  await writeFile(join(commands, "npx"), '#!/bin/sh\nname=$1; shift; exec "$name" "$@"\n', { mode: 0o755 });
  await writeFile(join(commands, "whetstone"), `#!/bin/sh\nexec node "${join(modules, "whetstone/dist/cli/main.js")}" "$@"\n`, {
    mode: 0o755,
  });
  const { WHETSTONE_BASE_URL: _, WHETSTONE_API_KEY: __, WHETSTONE_HOME: ___, ...inherited } = process.env;
  const path = [commands, join(ROOT, "node_modules/.bin"), inherited["PATH"] ?? ""].join(delimiter);
  const options = { cwd: directory, env: { ...inherited, PATH: path }, timeout: timeoutMs, maxBuffer: 2 ** 26 };
  const port = String(await freePort());
  const started: ChildProcess[] = [];
  return {
    async run({ file, code, commands: lines, shown, keepsRunning }) {
      if (file !== null) await writeFile(join(directory, file), code.replaceAll(PAGE_PORT, port));
      const script = lines.join("\n").replaceAll(PAGE_PORT, port);
      if (!keepsRunning) return (await promisify(execFile)("sh", ["-ec", script], options)).stdout.replaceAll(port, PAGE_PORT);
      const child = spawn("sh", ["-ec", script], {
        cwd: directory,
        env: options.env,
        detached: true,
        stdio: ["ignore", "pipe", "inherit"],
      });
      started.push(child);
      return printedUntil(child, (printed) => isShown(printed.replaceAll(port, PAGE_PORT), shown)).then((printed) =>
        printed.replaceAll(port, PAGE_PORT),
      );
    },
    async remove() {
      await Promise.all(started.map(stop));
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** Returns the output of a process once it is as expected, has ended, or has not come in time. */
async function printedUntil(child: ChildProcess, isExpected: (printed: string) => boolean): Promise<string> {
  let printed = "";
  await new Promise<void>((resolve) => {
    const timer = setTimeout(() => resolve(), START_TIMEOUT_MS);
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    child.stdout?.on("data", (chunk: Buffer) => {
      printed += chunk.toString();
      if (isExpected(printed)) end();
    });
    child.once("close", end);
  });
  return printed;
}

/** Stops a process with its children, which are a group of their own. */
async function stop(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const closed = once(child, "close");
  process.kill(-child.pid, "SIGTERM");
  await closed;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await promisify(server.close.bind(server))();
  return port;
}
