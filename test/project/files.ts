import { readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";

/** The project's directory. */
export const ROOT = resolve(import.meta.dirname, "../..");

/** Folders that are not part of the project's text: dependencies, build output and run directories. The same names as in `.gitignore`. */
const IGNORED = new Set([".git", ".whetstone", "coverage", "dist", "node_modules", "runs", "site"]);

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

/**
 * Returns the metrics of an RL step from the reference page, which another test compares with a job's metrics: `loss`, `grad_norm`, and the names
 * with a slash. The other keys are settings, or repeat one of these metrics.
 */
export function stepMetrics(): string[] {
  const section = read("docs/reference/metrics.md").split("\n## RL: `gradient_step` and checkpoint\n")[1]?.split("\n## ")[0] ?? "";
  const keys = [...section.matchAll(/^\| `([\w/]+)` \|/gmu)].map((match) => match[1] ?? "");
  const metrics = keys.filter((key) => key.includes("/") || ["loss", "grad_norm"].includes(key));
  if (metrics.length < 20) throw new Error("Expected the metrics of an RL step in docs/reference/metrics.md");
  return metrics;
}

/** A block of TypeScript in a document. */
export interface Block {
  /** File name in a folder of the document, so that the package name and the imports of other blocks of the page resolve from there. */
  readonly name: string;
  readonly code: string;
  readonly document: string;
  /** Line of the document at which the code starts, from 1. */
  readonly line: number;
}

/** Returns the blocks of TypeScript of a document, each a separate module. */
export function blocks(document: string): Block[] {
  const text = read(document);
  return [...text.matchAll(/^( *)```ts\n(.*?)^\1```$/gmsu)].map((match, index) => ({
    name: join(ROOT, `${document}.d`, /^\/\/ ([\w.-]+\.mts)\b/u.exec(match[2] ?? "")?.[1] ?? `${index}.mts`),
    code: `${match[2]}\nexport {};\n`,
    document,
    line: text.slice(0, match.index).split("\n").length + 1,
  }));
}

/** Fields of package.json that tests use. */
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
