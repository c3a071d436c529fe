import { Command } from "commander";
import type { CopyResult } from "../service/stored-files/copying.ts";
import { formatBytes } from "../base/util/units.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { requireSqlite } from "./sqlite-only.ts";

interface DirectoryOptions extends OutputOptions {
  readonly dataDir?: string;
  readonly storage?: string;
}

/** Creates the command `whetstone backup`, which copies a data directory, also while a service runs on it. */
export function backupCommand(): Command {
  return new Command("backup")
    .description("copy a data directory consistently, also while a service uses it")
    .argument("<directory>", "directory of the copy; empty or nonexistent")
    .option("--data-dir <path>", "data directory (default: WHETSTONE_HOME, or .whetstone)")
    .option("--storage <url>", "S3 storage of the files (default: the one of the database)")
    .action(async (directory: string, { dataDir, storage, ...options }: DirectoryOptions) => {
      requireSqlite("backup");
      // Imported lazily: `--help` needs no native binary.
      const { defaultDataDirectory } = await import("../service/disk/data-directory.ts");
      const { backUp } = await import("../service/stored-files/backup.ts");
      report(options, "Backup", await backUp(dataDir ?? defaultDataDirectory(), directory, { storage }));
    });
}

/** Creates the command `whetstone restore`, which creates a data directory from a backup. */
export function restoreCommand(): Command {
  return new Command("restore")
    .description("create a data directory from a backup; verifies every file")
    .argument("<backup>", "directory that `whetstone backup` wrote")
    .option("--data-dir <path>", "data directory to create; empty or nonexistent (default: WHETSTONE_HOME, or .whetstone)")
    .option("--storage <url>", "unused S3 storage that gets the files (default: WHETSTONE_STORAGE; without either, the data directory)")
    .action(async (backup: string, { dataDir, storage, ...options }: DirectoryOptions) => {
      requireSqlite("restore");
      const { defaultDataDirectory } = await import("../service/disk/data-directory.ts");
      const { restore } = await import("../service/stored-files/restore.ts");
      const { storageUrl } = await import("../service/stored-files/open-storage.ts");
      report(options, "Data directory", await restore(backup, dataDir ?? defaultDataDirectory(), { storage: storageUrl(storage) }));
    });
}

/** Prints the directory that was written, and its size. */
function report(options: OutputOptions, title: string, result: CopyResult): void {
  printResult(options, result, ({ directory, files, bytes }) => [`${title}: ${directory} (${files} files, ${formatBytes(bytes)})`]);
}
