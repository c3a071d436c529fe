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
  const all = new Set<string>();
  const list = typeof patterns === "string" ? [patterns] : patterns;
  if (list.length === 0) throw new DataError("Expected at least one path or glob, got none");
  for (const pattern of list) {
    const found = await expand(pattern);
    if (found.length === 0) {
      throw new DataError(`${pattern}: no such file${WILDCARD.test(pattern) ? ": the pattern matches nothing" : ""} (in ${process.cwd()})`);
    }
    for (const path of found.toSorted()) all.add(path);
  }
  return [...all];
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

/** Expands `{a,b}` into its alternatives: the leftmost outermost braces first, then recursively the braces that are left. */
function alternatives(pattern: string): string[] {
  const start = pattern.indexOf("{");
  if (start === -1) return [pattern];
  const choices = [""];
  let depth = 0;
  for (let index = start; index < pattern.length; index++) {
    const letter = pattern.charAt(index);
    if (letter === "{" && depth++ === 0) continue;
    if (letter === "}" && --depth === 0) {
      const [before, after] = [pattern.slice(0, start), pattern.slice(index + 1)];
      return choices.flatMap((choice) => alternatives(before + choice + after));
    }
    if (letter === "," && depth === 1) choices.push("");
    else choices[choices.length - 1] += letter;
  }
  throw new DataError(`${pattern}: expected every \`{\` of a glob to have its \`}\``);
}

/** Returns the files below `directory` ("" = the working directory) that match the path segments. */
async function walk(directory: string, [part, ...rest]: readonly string[]): Promise<string[]> {
  if (part === undefined) return [];
  const pathOf = (name: string) => (directory === "" ? name : join(directory, name));
  if (part === "**") {
    const below = (await list(directory)).filter((entry) => entry.isDirectory() && !entry.name.startsWith("."));
    const deeper = await Promise.all(below.map((entry) => walk(pathOf(entry.name), ["**", ...rest])));
    // `**` as the last segment matches every file below.
    return [...(await walk(directory, rest.length === 0 ? ["*"] : rest)), ...deeper.flat()];
  }
  if (!WILDCARD.test(part)) {
    if (rest.length > 0) return walk(pathOf(part), rest);
    return (await isFile(pathOf(part))) ? [pathOf(part)] : [];
  }
  const expression = toExpression(part);
  const names = (await list(directory)).map((entry) => entry.name).filter((name) => expression.test(name));
  const found = await Promise.all(
    names.map(async (name) => (rest.length > 0 ? walk(pathOf(name), rest) : (await isFile(pathOf(name))) ? [pathOf(name)] : [])),
  );
  return found.flat();
}

/** Returns the regular expression of a path segment with `*` and `?`. */
function toExpression(part: string): RegExp {
  const source = part.replaceAll(/[.+^${}()|[\]\\*?]/gu, (letter) => (letter === "*" ? "[^/]*" : letter === "?" ? "[^/]" : `\\${letter}`));
  return new RegExp(`^${part.startsWith(".") ? "" : "(?!\\.)"}${source}$`, "u");
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

async function isFile(path: string): Promise<boolean> {
  // Any readable path counts, including a named pipe.
  return stat(path).then(
    (stats) => !stats.isDirectory(),
    () => false,
  );
}
