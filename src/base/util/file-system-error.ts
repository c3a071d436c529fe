import { access } from "node:fs/promises";

/** Returns whether `error` comes from a call of the file system, such as EACCES of `mkdir`. */
export function isFileSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && typeof (error as NodeJS.ErrnoException).syscall === "string";
}

/** Whether `error` reports that a file or directory does not exist. */
export function isMissingFile(error: unknown): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === "ENOENT";
}

/**
 * Whether a path leads to a file or directory that this process can see. A broken symbolic link leads nowhere.
 *
 * @example
 * ```ts
 * await pathExists("package.json"); // true
 * ```
 */
export function pathExists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
