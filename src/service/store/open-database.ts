/** Opening of the database of a service: a SQLite file in the data directory, or a Postgres database. */
import { ConfigError } from "../../base/errors.ts";
import { whyNotNewDatabase } from "../disk/content.ts";
import type { DataDirectory } from "../disk/data-directory.ts";
import { sizeOf } from "../disk/files.ts";
import { openStoreAnyway, type SpaceWait } from "./full-start.ts";
import type { Store } from "./tables.ts";

/** Options of {@link openDatabase}. */
export interface OpenDatabaseOptions extends SpaceWait {
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
export async function openDatabase({ url, directory, ...spaceWait }: OpenDatabaseOptions): Promise<Store> {
  if (url === null) return openStoreAnyway(directory.database, { whyNotNew: await whyNotNewDatabase(directory), ...spaceWait });
  await requireNoDatabase(directory);
  // Loaded only for a service on Postgres.
  const { openPostgres } = await import("./postgres.ts");
  return openPostgres(url, { whyNotNew: await whyNotNewDatabase(directory, { isPostgres: true }) });
}

/**
 * Checks that a data directory has no SQLite database, because its records are in Postgres.
 *
 * @throws ConfigError `E_CONFIG` otherwise.
 */
export async function requireNoDatabase({ database }: DataDirectory): Promise<void> {
  if ((await sizeOf(database)) === 0) return;
  throw new ConfigError(
    `Expected a data directory without a database for a service on Postgres, found '${database}'. Use another data directory, or no Postgres database (\`--database ""\`). To move these records to Postgres, use \`whetstone backup --database ""\`, then \`whetstone restore --database postgres://…\``,
    { param: "database" },
  );
}
