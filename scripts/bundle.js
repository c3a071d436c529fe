/**
 * Writes the package's JavaScript to `dist`, next to the declarations of `tsc`: `node --import tsx scripts/bundle.js`.
 *
 * With one file per module of `src`, a third of the time of `import "whetstone"` goes into opening files. So a file is an entry only if it
 * is named from outside, by `exports` or `bin` of package.json or as a thread's own program (`*-worker.ts`); modules that several entries
 * need are in shared files, each module once. Nothing is minified: people read it, and source maps lead to `src`.
 */
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { build } from "esbuild";
import { bundlePage, PAGE_FOLDER, PAGES } from "../src/base/util/page-files.ts";

const root = resolve(import.meta.dirname, "..");
const { bin, engines, exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

function entryPoints() {
  const built = [...Object.values(exports).map((target) => target.default), ...Object.values(bin)].filter((path) => path !== undefined);
  const workers = readdirSync(join(root, "src"), { recursive: true }).filter((path) => path.endsWith("-worker.ts"));
  return [...built.map((path) => path.replace(/^\.\/dist\/(.*)\.js$/u, "src/$1.ts")), ...workers.map((path) => join("src", path))];
}

/**
 * Keeps the names of classes, because the name of an error is the name of its class. A class that mentions itself would become `_Name`,
 * and esbuild's own `keepNames` costs a call for each function, whenever one is made.
 */
const classNames = {
  name: "class names",
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]src[\\/].*\.ts$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replaceAll(/^(?:export )?(?:abstract )?class (\w+).*\{$/gmu, '$& static name = "$1";'),
      loader: "ts",
    }));
  },
};

/** Packages of many small modules: half of the CPU time of a service's start goes into their files. */
const MANY_FILES = ["@bufbuild/protobuf", "@hono/node-server", "hono", "kysely", "p-queue", "zod"];

/** Makes all packages external, except for some that become part of the bundle. */
const externalExcept = (included) => ({
  name: "external packages",
  setup({ onResolve }) {
    onResolve({ filter: /^[^./]/ }, ({ path, importer, kind }) => {
      if (kind === "entry-point") return undefined;
      const isIncluded = included.some((name) => path === name || path.startsWith(`${name}/`));
      return isIncluded || importer.includes("node_modules") ? undefined : { path, external: true };
    });
  },
});

/**
 * @param {string} outdir Relative to the project.
 * @param {{ includesPackages?: boolean }} options Whether packages of many files are part of the bundle, for programs that start often.
 */
export async function bundle(outdir, { includesPackages = false } = {}) {
  // The pages for browsers: one script and one style sheet each.
  await mkdir(join(root, outdir, PAGE_FOLDER), { recursive: true });
  for (const page of PAGES) {
    const { script, style } = await bundlePage(page, root);
    await writeFile(join(root, outdir, PAGE_FOLDER, `${page}.js`), script);
    await writeFile(join(root, outdir, PAGE_FOLDER, `${page}.css`), style);
  }
  return build({
    absWorkingDir: root,
    entryPoints: entryPoints(),
    outbase: "src",
    outdir,
    chunkNames: "chunks/[name]-[hash]",
    bundle: true,
    splitting: true,
    ...(includesPackages ? {} : { packages: "external" }),
    format: "esm",
    platform: "node",
    target: `node${engines.node.replace(/^\D+/u, "")}`,
    charset: "utf8",
    plugins: includesPackages ? [externalExcept(MANY_FILES), classNames] : [classNames],
    sourcemap: true,
    sourcesContent: false,
    metafile: true,
  });
}

if (process.argv[1] === import.meta.filename) await bundle("dist", { includesPackages: process.argv.includes("--packages") });
