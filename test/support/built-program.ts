/**
 * Builds programs of the project for tests that start them as processes of their own. A process that loads its modules through tsx
 * takes 1.5 s more CPU time to start, because every module of every dependency goes through tsx's thread.
 */
import { readFileSync } from "node:fs";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build, type Plugin } from "esbuild";
import { ROOT } from "../project/files.ts";

const built = new Map<string, Promise<string>>();

/**
 * Bundles a TypeScript program of the project with its relative imports; `whetstone/…` is the build of test/global-setup.ts.
 *
 * @returns The absolute path of the JavaScript, to be run by `node` without options.
 */
export function builtProgram(source: URL): Promise<string> {
  const path = fileURLToPath(source);
  let program = built.get(path);
  if (program === undefined) built.set(path, (program = write(path)));
  return program;
}

async function write(path: string): Promise<string> {
  const { outputFiles } = await build({
    absWorkingDir: ROOT,
    entryPoints: [path],
    bundle: true,
    write: false,
    packages: "external",
    format: "esm",
    platform: "node",
    target: "node20",
    plugins: [sourceAddresses],
    logLevel: "silent",
  });
  const program = join(ROOT, "dist/programs", relative(ROOT, path).replace(/\.ts$/u, ".js"));
  await mkdir(dirname(program), { recursive: true });
  // Two processes of the test runner may build the same program, and run it at once.
  const partial = `${program}.${process.pid}`;
  await writeFile(partial, outputFiles[0]!.contents);
  await rename(partial, program);
  return program;
}

/** `import.meta` of a bundled module states the address of its source. */
const sourceAddresses: Plugin = {
  name: "source addresses",
  setup({ onLoad }) {
    onLoad({ filter: /\.ts$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8")
        .replaceAll("import.meta.url", JSON.stringify(pathToFileURL(path).href))
        .replaceAll("import.meta.dirname", JSON.stringify(dirname(path))),
      loader: "ts",
    }));
  },
};
