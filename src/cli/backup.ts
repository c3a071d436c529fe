/** Commands `whetstone backup` and `whetstone restore`. Both work on the data directory itself; no service has to run. */
import { Command } from "commander";
import type { CopyResult } from "../service/stored-files/copying.ts";
import { formatBytes } from "../base/util/units.ts";
import { type OutputOptions, printResult } from "./output.ts";

/** Options that both commands have. */
interface DirectoryOptions extends OutputOptions {
  readonly dataDir?: string;
  readonly storage?: string;
  readonly database?: string;
}

/** Creates the command `whetstone backup`, which copies a data directory and its records, also while a service runs on it. */
export function backupCommand(): Command {
  return new Command("backup")
    .description("copy the records and files of a service consistently, also while it runs")
    .argument("<directory>", "directory of the copy; empty or nonexistent")
    .option("--data-dir <path>", "data directory (default: WHETSTONE_HOME, or .whetstone)")
    .option("--database <url>", "Postgres database of the service (default: WHETSTONE_DATABASE, or SQLite)")
    .option("--storage <url>", "S3 storage of the files (default: the one of the database)")
    .action(async (directory: string, { dataDir, storage, database, ...options }: DirectoryOptions) => {
      // Imported lazily: `--help` needs no native binary.
      const { defaultDataDirectory } = await import("../service/disk/data-directory.ts");
      const { databaseUrl } = await import("../service/store/open-database.ts");
      const { backUp } = await import("../service/stored-files/backup.ts");
      const source = { storage, database: databaseUrl(database) };
      printCopy(options, "Backup", await backUp(dataDir ?? defaultDataDirectory(), directory, source));
    });
}

/** Creates the command `whetstone restore`, which creates a data directory from a backup. */
export function restoreCommand(): Command {
  return new Command("restore")
    .description("create a data directory from a backup, with its records in SQLite or Postgres; verifies every file")
    .argument("<backup>", "directory that `whetstone backup` wrote")
    .option("--data-dir <path>", "data directory to create; empty or nonexistent (default: WHETSTONE_HOME, or .whetstone)")
    .option("--database <url>", "empty Postgres database or schema that gets the records (default: WHETSTONE_DATABASE, or SQLite)")
    .option("--storage <url>", "unused S3 storage that gets the files (default: WHETSTONE_STORAGE; without either, the data directory)")
    .action(async (backup: string, { dataDir, storage, database, ...options }: DirectoryOptions) => {
      const { defaultDataDirectory } = await import("../service/disk/data-directory.ts");
      const { restore } = await import("../service/stored-files/restore.ts");
      const { storageUrl } = await import("../service/stored-files/open-storage.ts");
      const { databaseUrl } = await import("../service/store/open-database.ts");
      const target = { storage: storageUrl(storage), database: databaseUrl(database) };
      printCopy(options, "Data directory", await restore(backup, dataDir ?? defaultDataDirectory(), target));
    });
}

/** Prints the directory that was written, its size, and the database that got records. */
function printCopy(options: OutputOptions, title: string, result: CopyResult): void {
  printResult(options, result, ({ directory, files, bytes, database }) => [
    `${title}: ${directory} (${files} files, ${formatBytes(bytes)})`,
    ...(database === undefined ? [] : [`Database: ${database}`]),
  ]);
}
