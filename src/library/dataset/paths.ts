/** Expansion of paths and globs to files, for all readers of data files. */
import type { Dirent } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { DataError } from "../../base/errors.ts";

/** Path or glob, or several. */
export type Patterns = string | readonly string[];

/** Characters that make a pattern a glob. */
const WILDCARD = /[*?{]/;

/**
 * Expands paths and globs to files, each listed once, in code-unit order within a pattern.
 *
 * In a glob, `*` and `?` match characters other than `/`, `**` as a whole path segment matches any number of directories, and `{a,b}`
 * matches either alternative. Wildcards do not match names that begin with a dot. A pattern that is the path of an existing file matches
 * only that file, even if the path contains wildcard characters.
 *
 * @throws DataError `E_DATA` for a pattern that matches no file.
 */
export async function expandPaths(patterns: Patterns): Promise<string[]> {
  const patternList = typeof patterns === "string" ? [patterns] : patterns;
  if (patternList.length === 0) throw new DataError("Expected at least one path or glob, got none");
  const paths = new Set<string>();
  for (const pattern of patternList) {
    const found = await expand(pattern);
    if (found.length === 0) {
      const detail = WILDCARD.test(pattern) ? ": the pattern matches nothing" : "";
      throw new DataError(`${pattern}: no such file${detail} (in ${process.cwd()})`);
    }
    for (const path of found.toSorted()) paths.add(path);
  }
  return [...paths];
}

/** Returns the files of one pattern; an empty list if it matches nothing. */
async function expand(pattern: string): Promise<string[]> {
  if (await isFile(pattern)) return [pattern];
  if (!WILDCARD.test(pattern)) return [];
  const found = await Promise.all(alternatives(pattern).map((each) => walk(each.startsWith("/") ? "/" : "", segmentsOf(each))));
  return [...new Set(found.flat())];
}

/** Returns the segments of a path, without empty ones and `.`. */
function segmentsOf(pattern: string): string[] {
  return pattern.split("/").filter((part) => part !== "" && part !== ".");
}

/** Expands `{a,b}` into its alternatives: the leftmost outermost braces first, then recursively the remaining braces. */
function alternatives(pattern: string): string[] {
  const start = pattern.indexOf("{");
  if (start === -1) return [pattern];
  /** Alternatives of the outermost braces; the last one is incomplete. */
  const choices = [""];
  /** Number of open braces. */
  let depth = 1;
  for (let index = start + 1; index < pattern.length; index++) {
    const letter = pattern.charAt(index);
    if (letter === "{") depth++;
    if (letter === "}") depth--;
    if (depth === 0) {
      const [before, after] = [pattern.slice(0, start), pattern.slice(index + 1)];
      return choices.flatMap((choice) => alternatives(before + choice + after));
    }
    if (letter === "," && depth === 1) choices.push("");
    else choices[choices.length - 1] += letter;
  }
  throw new DataError(`${pattern}: expected every \`{\` of a glob to have its \`}\``);
}

/** Returns the files below `directory` ("" = the working directory) that match the path segments. */
async function walk(directory: string, [segment, ...remaining]: readonly string[]): Promise<string[]> {
  if (segment === undefined) return [];
  const pathOf = (name: string) => (directory === "" ? name : join(directory, name));
  if (segment === "**") {
    const subdirectories = (await list(directory)).filter((entry) => entry.isDirectory() && !entry.name.startsWith("."));
    const deeper = await Promise.all(subdirectories.map((entry) => walk(pathOf(entry.name), ["**", ...remaining])));
    // `**` as the last segment matches every file below.
    return [...(await walk(directory, remaining.length === 0 ? ["*"] : remaining)), ...deeper.flat()];
  }
  /** Returns the matching files at and below the path of an entry that matches the first segment. */
  const filesAt = async (path: string): Promise<string[]> => {
    if (remaining.length > 0) return walk(path, remaining);
    return (await isFile(path)) ? [path] : [];
  };
  if (!WILDCARD.test(segment)) return filesAt(pathOf(segment));
  const expression = toExpression(segment);
  const names = (await list(directory)).map((entry) => entry.name).filter((name) => expression.test(name));
  return (await Promise.all(names.map((name) => filesAt(pathOf(name))))).flat();
}

/** Expressions of the wildcards inside a path segment. */
const WILDCARD_SOURCES: Readonly<Record<string, string>> = { "*": "[^/]*", "?": "[^/]" };

/** Returns the regular expression of a path segment with `*` and `?`. */
function toExpression(segment: string): RegExp {
  const source = segment.replaceAll(/[.+^${}()|[\]\\*?]/gu, (letter) => WILDCARD_SOURCES[letter] ?? `\\${letter}`);
  return new RegExp(`^${segment.startsWith(".") ? "" : "(?!\\.)"}${source}$`, "u");
}

/** Returns the entries of a directory; an empty list for a missing path or a file. */
async function list(directory: string): Promise<Dirent[]> {
  try {
    return await readdir(directory === "" ? "." : directory, { withFileTypes: true });
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return [];
    throw new DataError(`${directory}: cannot be listed: ${(error as Error).message}`, { cause: error });
  }
}

/** Whether a path can be read as a file: anything that exists except a directory, including a named pipe. */
async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (stats) => !stats.isDirectory(),
    () => false,
  );
}
