import { ConfigError } from "../base/errors.ts";

/**
 * Checks that the records of the service are not in Postgres.
 *
 * @param command - Command that works on SQLite databases only.
 * @throws ConfigError `E_CONFIG` if `WHETSTONE_DATABASE` is set.
 */
export function requireSqlite(command: string): void {
  if ((process.env["WHETSTONE_DATABASE"] ?? "") === "") return;
  throw new ConfigError(
    `\`whetstone ${command}\` works on data directories with a SQLite database, but WHETSTONE_DATABASE names a Postgres database. Dump and restore the database with pg_dump and pg_restore, and copy the data directory, or the bucket of its S3 storage, after the dump. For a data directory with SQLite, unset WHETSTONE_DATABASE`,
    { param: "database" },
  );
}
