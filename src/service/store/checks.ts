/** Checks of a database before it is used: that SQLite finds it intact, and that this version knows its migrations. */
import { ConfigError, DataCorruptedError } from "../../base/errors.ts";
import { first, messageOf } from "../../base/util/values.ts";
import { hasTable, queryOnce, type SqliteConnection } from "./connection.ts";
import { MIGRATIONS } from "./migrations.ts";

/**
 * Runs SQLite's `quick_check` on a database.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that is not a database or fails the check.
 */
export function requireIntact(connection: SqliteConnection, path: string): void {
  let finding: unknown;
  try {
    const [findings] = first(queryOnce(connection, "quick_check", "pragma_quick_check LIMIT 1"));
    if (findings === "ok") return;
    // The name of the database and the first finding.
    finding = String(findings).split("\n", 2).join("\n");
  } catch (error) {
    if (!isDamage(error)) throw error;
    finding = messageOf(error);
  }
  throw new DataCorruptedError(
    `The database '${path}' is damaged: ${String(finding)}. Nothing was changed. Make another data directory from a backup with \`whetstone restore\``,
    { param: "dataDir" },
  );
}

/** Primary result codes of SQLite for a damaged file: SQLITE_CORRUPT and SQLITE_NOTADB. The low 8 bits of a code are the primary one. */
const DAMAGE_CODES = [11, 26];

/** Whether SQLite reports a damaged file. */
function isDamage(error: unknown): boolean {
  return error instanceof Error && "errcode" in error && DAMAGE_CODES.includes((error as { errcode: number }).errcode & 0xff);
}

/**
 * Returns the number of migrations applied to a database.
 *
 * @throws ConfigError `E_CONFIG` for a migration that this version does not know.
 */
export function requireKnown(connection: SqliteConnection, path: string): number {
  if (!hasTable(connection, "kysely_migration")) return 0;
  const names = queryOnce(connection, "name", "kysely_migration ORDER BY name").map(([name]) => String(name));
  requireKnownMigrations(names, `'${path}'`, "dataDir");
  return names.length;
}

/**
 * Checks the names of the migrations that were applied to a database.
 *
 * @param where - Name of the database for the message.
 * @throws ConfigError `E_CONFIG`, naming `param`, for a migration that this version does not know.
 */
export function requireKnownMigrations(names: readonly string[], where: string, param: string): void {
  const unknown = names.filter((name) => !Object.hasOwn(MIGRATIONS, name));
  if (unknown.length === 0) return;
  const newest = Object.keys(MIGRATIONS).at(-1);
  const found = unknown.map((name) => `'${name}'`).join(", ");
  throw new ConfigError(
    `The database ${where} was written by a newer version: expected migrations up to '${newest}', found ${found}. Nothing was changed. Use that version or a newer one`,
    { param },
  );
}
