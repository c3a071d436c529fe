/**
 * Returns the URL of a file of this package by its path from the package root. Paths relative to the calling module are unreliable, because
 * the built package may bundle a module into any file of `dist`.
 */
export function packageFile(path: string): URL {
  return new URL(path, import.meta.resolve("whetstone/package.json"));
}
