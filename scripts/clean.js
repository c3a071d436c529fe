/** Removes build output, by name: `node scripts/clean.js dist`. */
import { rmSync } from "node:fs";
import { resolve, relative } from "node:path";

const root = resolve(import.meta.dirname, "..");
for (const name of process.argv.slice(2)) {
  const path = resolve(root, name);
  if (relative(root, path).startsWith("..") || path === root) throw new Error(`Expected a path inside the project, got \`${name}\``);
  rmSync(path, { recursive: true, force: true });
}
