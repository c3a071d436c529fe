/** Scripts and styles of the report and the dashboard, which run in browsers. The server parts embed them in their HTML. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { InternalError } from "../errors.ts";
import { packageFile } from "./package-file.ts";

/** Folder of the pages below `src` and, in the build, below `dist`. */
export const PAGE_FOLDER = "lab/page";

/** Pages in `src/lab/page`: the report of a run, and the dashboard. */
export const PAGES = ["report", "dashboard"] as const;

/** A page's script, one module without imports, and its styles. */
export interface PageFiles {
  readonly script: string;
  readonly style: string;
}

/**
 * Returns the files of a page. In the build it reads `dist/lab/page`; if this module runs from source, it makes the same bundle from
 * `src/lab/page`. A program that runs from source has esbuild, a dependency of tsx.
 */
export async function pageFiles(name: (typeof PAGES)[number]): Promise<PageFiles> {
  if (import.meta.url.endsWith(".ts")) return bundlePage(name, fileURLToPath(packageFile(".")));
  const [script, style] = await Promise.all([builtFile(`${name}.js`), builtFile(`${name}.css`)]);
  return { script, style };
}

/** Reads a file of the built package. */
async function builtFile(name: string): Promise<string> {
  try {
    return await readFile(packageFile(`dist/${PAGE_FOLDER}/${name}`), "utf8");
  } catch (error) {
    throw new InternalError(`A file of the page is missing: dist/${PAGE_FOLDER}/${name}. Install the package again`, { cause: error });
  }
}

/**
 * Bundles a page from `src/lab/page` with the packages it uses.
 *
 * @param root - Path of the package.
 */
export async function bundlePage(name: (typeof PAGES)[number], root: string): Promise<PageFiles> {
  const { build } = await import("esbuild");
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: [`src/${PAGE_FOLDER}/${name}/main.tsx`, `src/${PAGE_FOLDER}/${name}/main.css`],
    outdir: `dist/${PAGE_FOLDER}`,
    bundle: true,
    format: "esm",
    target: "es2023",
    charset: "utf8",
    jsx: "automatic",
    jsxImportSource: "preact",
    minify: true,
    legalComments: "none",
    metafile: true,
    write: false,
  });
  const text = (extension: string) => outputFiles.find(({ path }) => path.endsWith(extension))?.text ?? "";
  return { script: `${await licenses(root, Object.keys(metafile.inputs))}\n${text(".js")}`, style: text(".css") };
}

/** Returns the license texts of the packages among bundled files as comments. */
async function licenses(root: string, files: readonly string[]): Promise<string> {
  const names = new Set(files.flatMap((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//u.exec(file)?.[1] ?? []));
  const texts = await Promise.all(
    [...names].toSorted().map(async (name) => {
      const license = await readFile(join(root, `node_modules/${name}/LICENSE`), "utf8");
      return `/*!\n${name}\n\n${license.replaceAll("\r\n", "\n").trim()}\n*/`;
    }),
  );
  return texts.join("\n");
}
