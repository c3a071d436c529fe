/** Quarantine of files that the database does not mention: they may be the only copy, for example after a database was replaced. */
import { randomUUID } from "node:crypto";
import { lstat, mkdir, readdir, rename } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { DataDirectory } from "./data-directory.ts";
import { messageOf } from "../../base/util/values.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";
import { remove } from "./files.ts";
import type { ServiceLogger } from "../common/logger.ts";

/** Name of a quarantine: the time of its creation with `-` for `:`, and a suffix. */
const NAME = /^(\d{4}-\d\d-\d\dT\d\d)-(\d\d)-(\d\d\.\d{3}Z)-[0-9a-f]{8}$/u;

/** Max paths in a log entry. */
const MAX_LOGGED_PATHS = 20;

/**
 * Deletes quarantines that are older than `maxAgeMs`, and no other entries of the directory. Logs one that cannot be deleted.
 *
 * @returns the number of deleted quarantines.
 */
export async function deleteOldQuarantines(
  { quarantine }: Pick<DataDirectory, "quarantine">,
  maxAgeMs: number,
  logger: Pick<ServiceLogger, "error">,
): Promise<number> {
  let deleted = 0;
  // The directory is created with the first quarantine.
  for (const name of await readdir(quarantine).catch(emptyIfMissing)) {
    const [, dateAndHour, minute, second] = NAME.exec(name) ?? [];
    if (dateAndHour === undefined) continue;
    const createdMs = Date.parse(`${dateAndHour}:${minute}:${second}`);
    // The pattern also accepts impossible times, such as hour 99.
    if (Number.isNaN(createdMs) || Date.now() - createdMs <= maxAgeMs) continue;
    try {
      await remove(join(quarantine, name));
      deleted++;
    } catch (error) {
      logger.error("A directory of the quarantine could not be deleted", { path: join(quarantine, name), error: messageOf(error) });
    }
  }
  return deleted;
}

/** Returns no names if a directory does not exist. @throws any other error of reading it. */
function emptyIfMissing(error: unknown): string[] {
  if (isMissingFile(error)) return [];
  throw error;
}

/**
 * Quarantine of one start of the service, or of one call of `saveDurably`: a directory that is created with the first moved file, and named
 * after the time of the constructor.
 */
export class Quarantine {
  readonly #directory: DataDirectory;
  readonly #logger: ServiceLogger;
  /** Directory of all paths of this quarantine. */
  readonly #quarantinePath: string;
  /** Moved paths, relative to the data directory. */
  readonly #movedPaths: string[] = [];

  constructor(directory: DataDirectory, logger: ServiceLogger) {
    this.#directory = directory;
    this.#logger = logger;
    const time = new Date().toISOString().replaceAll(":", "-");
    // The suffix separates two quarantines of the same millisecond: a rename would replace a file with the same name.
    this.#quarantinePath = join(directory.quarantine, `${time}-${randomUUID().slice(0, 8)}`);
  }

  /**
   * Moves a file or a directory to `quarantine/<time>-<suffix>/`, keeping its relative path. Ignores a missing path. Logs a path that cannot
   * be moved and leaves it in place.
   */
  async add(path: string): Promise<void> {
    const storedPath = relative(this.#directory.root, path);
    try {
      // A missing path leaves no empty quarantine.
      await lstat(path);
      await mkdir(dirname(join(this.#quarantinePath, storedPath)), { recursive: true, mode: 0o700 });
      await rename(path, join(this.#quarantinePath, storedPath));
      this.#movedPaths.push(storedPath);
    } catch (error) {
      if (isMissingFile(error)) return;
      this.#logger.warn("A file that the database does not mention could not be moved to the quarantine", {
        path: storedPath,
        error: messageOf(error),
      });
    }
  }

  /** Logs the moved paths, if any. */
  report(): void {
    if (this.#movedPaths.length === 0) return;
    this.#logger.warn("Files that the database does not mention were moved to the quarantine; delete them there once nobody misses them", {
      quarantine: this.#quarantinePath,
      count: this.#movedPaths.length,
      paths: this.#movedPaths.slice(0, MAX_LOGGED_PATHS),
    });
  }
}
