/** Output of `npm run build`: few files, with the same behavior as the modules of `src`. */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join, posix } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { bundle } from "../../scripts/bundle.js";
import { PAGE_FOLDER } from "../../src/base/util/page-files.ts";
import { writeReport } from "../../src/lab/report/index.ts";
import { entries, packageJson, projectFiles, read, ROOT } from "./files.ts";
import { importsOf, loadedBy } from "./imports.ts";

/** Maximum number of files that `import "whetstone"` opens; one file per module would be about a hundred more. */
const MAX_ROOT_FILES = 49;
const PROGRAM_TIMEOUT_MS = 110_000;

/** Output file of the build. */
interface Output {
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly imports: readonly { readonly path: string; readonly kind: string; readonly external?: boolean }[];
}

let directory: string;
let outputs: Readonly<Record<string, Output>>;

// Next to the sources, so that the build finds its dependencies and the package itself.
beforeAll(async () => {
  await mkdir(join(ROOT, "runs"), { recursive: true });
  directory = await mkdtemp(join(ROOT, "runs", "bundle-"));
  const outdir = `runs/${basename(directory)}`;
  const { metafile } = await bundle(outdir);
  outputs = Object.fromEntries(
    Object.entries(metafile!.outputs).map(([path, output]) => [
      posix.relative(outdir, path),
      {
        ...output,
        imports: output.imports.map((target) => (target.external ? target : { ...target, path: posix.relative(outdir, target.path) })),
      },
    ]),
  );
});
afterAll(() => rm(directory, { recursive: true, force: true }));

/** Returns the files of the build that importing `path` opens at once. */
function opened(path: string, seen = new Set<string>()): Set<string> {
  if (seen.has(path)) return seen;
  seen.add(path);
  for (const { path: target, kind, external } of outputs[path]!.imports) {
    if (kind === "import-statement" && external !== true) opened(target, seen);
  }
  return seen;
}

const builtFrom = (source: string): string => source.replace(/^src\/(.*)\.ts$/u, "$1.js");

async function node(...args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: directory, timeout: PROGRAM_TIMEOUT_MS });
  return stdout;
}

describe("the built JavaScript", () => {
  it("has a file for every path in package.json", () => {
    const named = Object.values(packageJson.exports).flatMap((target) => (typeof target === "string" ? [] : [target["default"] ?? ""]));
    for (const path of [...named, ...Object.values(packageJson.bin)]) expect(outputs).toHaveProperty([path.replace("./dist/", "")]);
  });

  it("has a file for every worker thread", () => {
    const spawned = projectFiles("src").flatMap((file) => [...read(file).matchAll(/spawnWorker\("([^"]+)"/gu)]);
    expect(spawned.length).toBeGreaterThan(0);
    for (const [, name] of spawned) expect(outputs).toHaveProperty([`${name}.js`]);
  });

  it("has the same report page script as a report written from source", async () => {
    await writeFile(join(directory, "config.json"), "{}");
    const { path } = await writeReport(directory);
    const script = await readFile(join(directory, PAGE_FOLDER, "report.js"), "utf8");
    expect(/<script type="module">(.*?)<\/script>/su.exec(await readFile(path, "utf8"))?.[1]).toBe(script);
  });

  it("contains each module once", () => {
    const modules = Object.values(outputs).flatMap(({ inputs }) => Object.keys(inputs));
    expect(modules.length).toBeGreaterThan(100);
    expect(modules.filter((module, index) => modules.indexOf(module) !== index)).toEqual([]);
  });

  it("opens few files for the package root", () => {
    expect(opened("index.js").size).toBeLessThanOrEqual(MAX_ROOT_FILES);
  });

  it.each(["trainer", "helper", "sampler"])("loads few packages for a thread of the engine: %s", (thread) => {
    const files = [...opened(`engine/onnx/threads/${thread}-worker.js`)].map((path) => outputs[path]!);
    const imports = files.flatMap((file) => file.imports).filter(({ kind, external }) => kind === "import-statement" && external);
    const packages = new Set(imports.map(({ path }) => path).filter((path) => !path.startsWith("node:")));
    // Others, Zod and the tokenizer among them, would more than double the time that each thread takes to start.
    expect([...packages].toSorted()).toEqual(["@bufbuild/protobuf/wire"]);
  });

  it.each([...entries])("loads for %s only the modules and packages that the source loads at once", (_, source) => {
    const files = [...opened(builtFrom(source))].map((path) => outputs[path]!);
    const modules = loadedBy(source);
    expect(files.flatMap(({ inputs }) => Object.keys(inputs)).filter((module) => !modules.has(module))).toEqual([]);

    const named = new Set([...modules].flatMap(importsOf).flatMap(({ specifier, kind }) => (kind === "value" ? [specifier] : [])));
    const packages = files.flatMap(({ imports }) => imports).filter(({ kind, external }) => kind === "import-statement" && external);
    expect(packages.map(({ path }) => path).filter((specifier) => !named.has(specifier))).toEqual([]);
  });

  it("keeps the names of classes, because errors are identified by name", async () => {
    const files = [...entries.values()].map((source) => pathToFileURL(join(directory, builtFrom(source))).href);
    const program = `
      const isClass = (value) => typeof value === "function" && String(value).startsWith("class");
      const entries = await Promise.all(${JSON.stringify(files)}.map((file) => import(file)));
      const classes = entries.flatMap((entry) => Object.entries(entry).filter(([, value]) => isClass(value)));
      console.log(JSON.stringify(classes.map(([exported, { name }]) => [exported, name])));
    `;
    const classes = JSON.parse(await node("--input-type=module", "--eval", program)) as [string, string][];
    expect(classes.length).toBeGreaterThan(10);
    expect(classes.filter(([exported, name]) => exported !== name)).toEqual([]);
  });

  it("finds the files of the package at run time", async () => {
    const { version } = JSON.parse(read("package.json")) as { version: string };
    expect((await node(join(directory, "cli/main.js"), "--version")).trim()).toBe(version);
  });
});

describe("the modules", () => {
  it("do not resolve files relative to themselves, because a build moves them", () => {
    const relativeToModule = /import\.meta\.(?:dirname|filename)|new URL\([^)]*import\.meta\.url/u;
    expect(projectFiles("src").filter((file) => relativeToModule.test(read(file)))).toEqual([]);
    expect('new URL("../models/", import.meta.url)').toMatch(relativeToModule);
  });
});
