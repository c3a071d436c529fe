/** Lock of a data directory: one service at a time uses a directory. */
import { join } from "node:path";
import { ConfigError } from "../../base/errors.ts";
import { readServiceFile, type DataDirectory } from "../disk/data-directory.ts";
import { lockFile } from "./connection.ts";

/**
 * Locks the directory for this process until the returned function is called or the process ends for any reason.
 *
 * @returns a function that releases the lock.
 * @throws ConfigError `E_CONFIG` while another service holds the lock; the message names its URL.
 */
export async function lockDataDirectory(directory: DataDirectory): Promise<() => void> {
  const unlock = await lockFile(join(directory.root, "service.lock"));
  if (unlock !== null) return unlock;
  const other = await readServiceFile(directory.serviceFile);
  const where = other === null ? "a service that is starting or stopping" : `the service at ${other.url} (process ${other.pid})`;
  throw new ConfigError(
    `The data directory '${directory.root}' is in use by ${where}. Use that service, stop it, or choose another directory`,
    // Retryable: the other service may be shutting down.
    { param: "dataDir", retryable: true },
  );
}
