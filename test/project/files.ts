import { readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";

/** The project's directory. */
export const ROOT = resolve(import.meta.dirname, "../..");

/** What is not the project's text: dependencies, output, and what runs leave behind. The same names as in `.gitignore`. */
const IGNORED = new Set([".git", ".whetstone", "coverage", "dist", "node_modules", "runs", "docs/reference/api"]);

/** The project's files below `folder`, as paths with `/` relative to the project. Not `git ls-files`: an unpacked archive has no `.git`. */
export function projectFiles(folder = "."): string[] {
  const names = readdirSync(join(ROOT, folder), { withFileTypes: true });
  const files = names.flatMap((entry) => {
    const path = relative(ROOT, join(ROOT, folder, entry.name))
      .split(sep)
      .join("/");
    if (IGNORED.has(entry.name) || IGNORED.has(path)) return [];
    if (entry.isDirectory()) return projectFiles(path);
    return entry.isFile() ? [path] : [];
  });
  return files.toSorted();
}

/** A file of the project as text. */
export function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}

/** A block of TypeScript in a document. */
export interface Block {
  /** A file name beside the document, so that relative imports and the package's own name resolve from there. */
  readonly name: string;
  readonly code: string;
  readonly document: string;
  /** Where the code starts in the document, counted from 1. */
  readonly line: number;
}

/** The blocks of TypeScript of a document, each a module of its own. */
export function blocks(document: string): Block[] {
  const text = read(document);
  return [...text.matchAll(/^( *)```ts\n(.*?)^\1```$/gmsu)].map((match, index) => ({
    name: join(ROOT, `${document}.${index}.ts`),
    code: `${match[2]}\nexport {};\n`,
    document,
    line: text.slice(0, match.index).split("\n").length + 1,
  }));
}

/** The part of package.json that tests look at. */
export interface PackageJson {
  readonly bin: Readonly<Record<string, string>>;
  readonly scripts: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly allowScripts: Readonly<Record<string, boolean>>;
  readonly exports: Readonly<Record<string, string | Readonly<Record<string, string>>>>;
}

/** package.json. */
export const packageJson = JSON.parse(read("package.json")) as PackageJson;

/** Entry (`whetstone/dataset`) → its file in `src`. */
export const entries: ReadonlyMap<string, string> = new Map(
  Object.entries(packageJson.exports).flatMap(([subpath, target]) =>
    typeof target === "string" ? [] : [[join("whetstone", subpath), (target["whetstone/source"] ?? "").replace("./", "")]],
  ),
);
