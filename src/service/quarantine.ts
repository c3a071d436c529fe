import { randomUUID } from "node:crypto";
import { lstat, mkdir, rename } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { DataDirectory } from "./data-directory.ts";
import { messageOf } from "./error-text.ts";
import type { ServiceLogger } from "./logger.ts";

/** Moves files that the database does not mention out of use without deleting them. */
export interface Quarantine {
  /** Paths that were moved, relative to the data directory. */
  readonly moved: readonly string[];
  /**
   * Moves a file or a directory to `quarantine/<time>/`, below which it keeps its relative path. A missing path is ignored. A path that
   * cannot be moved stays in place and is logged.
   */
  add(path: string): Promise<void>;
}

/** Creates a quarantine whose paths share one directory, named after the present time (UTC). */
export function createQuarantine(directory: DataDirectory, logger: ServiceLogger): Quarantine {
  const time = new Date().toISOString().replaceAll(":", "-");
  // The suffix keeps two quarantines of one millisecond apart: a rename would replace a file of the same name.
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

/** Logs the paths of a quarantine, if there are any. */
export function reportQuarantine({ moved }: Quarantine, directory: DataDirectory, logger: ServiceLogger): void {
  if (moved.length === 0) return;
  logger.warn("Files that the database does not mention were moved to the quarantine; delete them there once nobody misses them", {
    quarantine: directory.quarantine,
    count: moved.length,
    paths: moved.slice(0, 20),
  });
}
