import { randomUUID } from "node:crypto";
import { lstat, mkdir, readdir, rename } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { DataDirectory } from "./data-directory.ts";
import { messageOf } from "../../base/util/values.ts";
import { remove } from "./files.ts";
import type { ServiceLogger } from "../common/logger.ts";

/** Name of a quarantine: the time of its creation with `-` for `:`, and a suffix. */
const NAME = /^(\d{4}-\d\d-\d\dT\d\d)-(\d\d)-(\d\d\.\d{3}Z)-[0-9a-f]{8}$/u;

/** Max paths in a log entry. */
const MAX_LOGGED_PATHS = 20;

/** Deletes quarantines that are older than `maxAgeMs`. @returns their number. */
export async function deleteOldQuarantines({ quarantine }: Pick<DataDirectory, "quarantine">, maxAgeMs: number): Promise<number> {
  let deleted = 0;
  for (const name of await readdir(quarantine).catch(() => [])) {
    const [, hour, minute, seconds] = NAME.exec(name) ?? [];
    if (hour === undefined || Date.now() - Date.parse(`${hour}:${minute}:${seconds}`) <= maxAgeMs) continue;
    await remove(join(quarantine, name));
    deleted++;
  }
  return deleted;
}

/** Quarantine: receives files that the database does not mention, instead of deleting them at once. */
export class Quarantine {
  readonly #directory: DataDirectory;
  readonly #logger: ServiceLogger;
  /** Directory of all paths of this quarantine, named after the time of its creation (UTC). */
  readonly #target: string;
  /** Moved paths, relative to the data directory. */
  readonly #moved: string[] = [];

  constructor(directory: DataDirectory, logger: ServiceLogger) {
    this.#directory = directory;
    this.#logger = logger;
    const time = new Date().toISOString().replaceAll(":", "-");
    // The suffix separates two quarantines of the same millisecond: a rename would replace a file with the same name.
    this.#target = join(directory.quarantine, `${time}-${randomUUID().slice(0, 8)}`);
  }

  /**
   * Moves a file or a directory to `quarantine/<time>/`, keeping its relative path. Ignores a missing path. Logs a path that cannot be
   * moved and leaves it in place.
   */
  async add(path: string): Promise<void> {
    if ((await lstat(path).catch(() => null)) === null) return;
    const storedPath = relative(this.#directory.root, path);
    try {
      await mkdir(dirname(join(this.#target, storedPath)), { recursive: true, mode: 0o700 });
      await rename(path, join(this.#target, storedPath));
      this.#moved.push(storedPath);
    } catch (error) {
      this.#logger.warn("A file that the database does not mention could not be moved to the quarantine", {
        path: storedPath,
        error: messageOf(error),
      });
    }
  }

  /** Logs the moved paths, if any. */
  report(): void {
    if (this.#moved.length === 0) return;
    this.#logger.warn("Files that the database does not mention were moved to the quarantine; delete them there once nobody misses them", {
      quarantine: this.#directory.quarantine,
      count: this.#moved.length,
      paths: this.#moved.slice(0, MAX_LOGGED_PATHS),
    });
  }
}
