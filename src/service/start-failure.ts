/** Conversion of the errors of a start: a message with a remedy for errors of the file system. */
import { ConfigError, NoSpaceError, WhetstoneError } from "../base/errors.ts";
import { isFileSystemError } from "../base/util/file-system-error.ts";
import { isNoSpace } from "../base/util/no-space.ts";
import { messageOf } from "../base/util/values.ts";

/** Converts the error of a start on the data directory `root`: errors of the file system get a remedy, others are returned unchanged. */
export function toStartError(root: string, error: unknown): unknown {
  if (WhetstoneError.isInstance(error)) return error;
  if (isNoSpace(error))
    return new NoSpaceError(
      `The service cannot start, because the file system of the data directory '${root}' is full: ${messageOf(error)}. Make room there and start it again`,
      { cause: error, param: "dataDir" },
    );
  return isFileSystemError(error) ? unusableError(root, error) : error;
}

/** Returns the error for a data directory with a file that cannot be read or written. */
function unusableError(root: string, cause: Error): ConfigError {
  return new ConfigError(
    `The service cannot start on the data directory '${root}': ${messageOf(cause)}. Make the directory and everything in it readable and writable for this process, and move away what is in the place of another file`,
    { cause, param: "dataDir" },
  );
}
