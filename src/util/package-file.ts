/**
 * A file of this package by its path from the package's root. Not by one from the module that asks: in the built package a module
 * may lie in any file of `dist`.
 */
export function packageFile(path: string): URL {
  return new URL(path, import.meta.resolve("whetstone/package.json"));
}
