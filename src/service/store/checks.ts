import { ConfigError, DataCorruptedError } from "../../base/errors.ts";
import { messageOf } from "../../base/util/values.ts";
import type { SqliteConnection } from "./connection.ts";
import { MIGRATIONS } from "./migrations.ts";

/**
 * Runs SQLite's `quick_check` on a database.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that is not a database or fails the check.
 */
export function requireIntact(connection: SqliteConnection, path: string): void {
  let finding: unknown;
  try {
    [finding] = Object.values(connection.prepare("PRAGMA quick_check(1)").all()[0] as object);
    if (finding === "ok") return;
  } catch (error) {
    if (!isDamage(error)) throw error;
    finding = messageOf(error);
  }
  throw new DataCorruptedError(
    `The database '${path}' is damaged: ${String(finding)}. Nothing was changed. Make another data directory from a backup with \`whetstone restore\``,
    { param: "dataDir" },
  );
}

/** Whether SQLite reports a damaged file (SQLITE_CORRUPT, 11, or SQLITE_NOTADB, 26). */
function isDamage(error: unknown): boolean {
  return error instanceof Error && "errcode" in error && [11, 26].includes((error as { errcode: number }).errcode & 0xff);
}

/**
 * Returns the number of migrations applied to a database.
 *
 * @throws ConfigError `E_CONFIG` for a migration that this version does not know.
 */
export function requireKnown(connection: SqliteConnection, path: string): number {
  const [table] = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'kysely_migration'").all();
  if (table === undefined) return 0;
  const names = connection
    .prepare("SELECT name FROM kysely_migration ORDER BY name")
    .all()
    .map((row) => (row as { name: string }).name);
  requireKnownMigrations(names, `'${path}'`, "dataDir");
  return names.length;
}

/**
 * Checks the names of the migrations that were applied to a database.
 *
 * @throws ConfigError `E_CONFIG`, naming `param`, for a migration that this version does not know.
 */
export function requireKnownMigrations(names: readonly string[], where: string, param: string): void {
  const unknown = names.filter((name) => !Object.hasOwn(MIGRATIONS, name));
  if (unknown.length === 0) return;
  throw new ConfigError(
    `The database ${where} was written by a newer version: expected migrations up to '${Object.keys(MIGRATIONS).at(-1)}', found ${unknown.map((name) => `'${name}'`).join(", ")}. Nothing was changed. Use that version or a newer one`,
    { param },
  );
}
