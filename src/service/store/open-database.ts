import { ConfigError } from "../../base/errors.ts";
import { whyNotNewDatabase } from "../disk/content.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { sizeOf } from "../disk/files.ts";
import { openStoreAnyway, type Waiting } from "./full-start.ts";
import type { Store } from "./tables.ts";

/** Options of {@link openDatabase}. */
export interface OpenDatabaseOptions extends Waiting {
  /** Address of a Postgres database; null = the SQLite file of the data directory. */
  readonly url: string | null;
  readonly directory: DataDirectory;
}

/**
 * Returns the address of the Postgres database to use: the option, else `WHETSTONE_DATABASE`.
 *
 * @returns null for the SQLite file of the data directory.
 */
export function databaseUrl(option: string | undefined): string | null {
  const url = option ?? process.env["WHETSTONE_DATABASE"] ?? "";
  return url === "" ? null : url;
}

/**
 * Opens the database of a service. Nothing is written before the check that the database belongs to the data directory.
 *
 * @throws ConfigError `E_CONFIG` for a database without tables on a data directory with files, for a Postgres database on a directory with a
 *   SQLite database, and the errors of {@link openStoreAnyway} and `openPostgres`.
 */
export async function openDatabase({ url, directory, ...waiting }: OpenDatabaseOptions): Promise<Store> {
  if (url === null) return openStoreAnyway(directory.database, { whyNotNew: await whyNotNewDatabase(directory), ...waiting });
  if ((await sizeOf(directory.database)) > 0) {
    throw new ConfigError(
      `Expected a data directory without a database for a service on Postgres, found '${directory.database}'. Use another data directory, or start without \`database\``,
      { param: "database" },
    );
  }
  // Loaded only for a service on Postgres.
  const { openPostgres } = await import("./postgres.ts");
  return openPostgres(url, { whyNotNew: await whyNotNewDatabase(directory, { isPostgres: true }) });
}
