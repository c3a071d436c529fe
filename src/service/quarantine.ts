import { randomUUID } from "node:crypto";
import { lstat, mkdir, rename } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { DataDirectory } from "./data-directory.ts";
import { messageOf } from "./error-text.ts";
import type { ServiceLogger } from "./logger.ts";

/** Quarantine: receives files that the database does not mention, instead of deleting them. */
export interface Quarantine {
  /** Moved paths, relative to the data directory. */
  readonly moved: readonly string[];
  /**
   * Moves a file or a directory to `quarantine/<time>/`, keeping its relative path. Ignores a missing path. Logs a path that cannot be
   * moved and leaves it in place.
   */
  add(path: string): Promise<void>;
}

/** Creates a quarantine. All its paths share one directory, named after the current time (UTC). */
export function createQuarantine(directory: DataDirectory, logger: ServiceLogger): Quarantine {
  const time = new Date().toISOString().replaceAll(":", "-");
  // The suffix separates two quarantines of the same millisecond: a rename would replace a file with the same name.
  const target = join(directory.quarantine, `${time}-${randomUUID().slice(0, 8)}`);
  const moved: string[] = [];
  return {
    moved,
    async add(path) {
      if ((await lstat(path).catch(() => null)) === null) return;
      const place = relative(directory.root, path);
      try {
        await mkdir(dirname(join(target, place)), { recursive: true, mode: 0o700 });
        await rename(path, join(target, place));
        moved.push(place);
      } catch (error) {
        logger.warn("A file that the database does not mention could not be moved to the quarantine", {
          path: place,
          error: messageOf(error),
        });
      }
    },
  };
}

/** Logs the moved paths, if any. */
export function reportQuarantine({ moved }: Quarantine, directory: DataDirectory, logger: ServiceLogger): void {
  if (moved.length === 0) return;
  logger.warn("Files that the database does not mention were moved to the quarantine; delete them there once nobody misses them", {
    quarantine: directory.quarantine,
    count: moved.length,
    paths: moved.slice(0, 20),
  });
}
