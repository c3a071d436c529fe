/** Returns whether `error` comes from a call of the file system, such as EACCES of `mkdir`. */
export function isFileSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && typeof (error as NodeJS.ErrnoException).syscall === "string";
}
