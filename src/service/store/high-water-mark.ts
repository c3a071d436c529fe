/**
 * High-water mark of a SQLite database. Each synchronized write transaction increments a number in the database, and a file next to the
 * database (the mark) has the number of the last transaction. If the database has a lower number at the next start, its write-ahead log was
 * lost, although SQLite finds the database intact.
 *
 * The mark is written after the commit and before the commit is reported to its caller, so it is never ahead of the database and covers
 * every acknowledged transaction. The end of the process loses nothing that was written to a file, so the mark needs no synchronization:
 * a failure of the system may leave an older number, which is valid, too.
 */
import { closeSync, constants, openSync, rmSync, writeSync } from "node:fs";
import { stat } from "node:fs/promises";
import { ConfigError, DataCorruptedError } from "../../base/errors.ts";
import { readRegularFile } from "../../base/util/regular-file.ts";
import { messageOf } from "../../base/util/values.ts";
import { sizeOf } from "../disk/files.ts";
import { hasTable, queryOnce, type SqliteConnection } from "./connection.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Digits of the number in the file. A number of fixed length is overwritten in place. */
const DIGITS = 16;
/** Max bytes of the file that is read. */
const MAX_BYTES = 1024;

/** Statement that counts a transaction. */
const INCREMENT = "UPDATE transaction_count SET count = count + 1, committed_at = ? RETURNING count";

/** Last transaction of a database. */
interface LastTransaction {
  readonly count: number;
  /** Time of the commit; null if unknown. */
  readonly committedAt: string | null;
}

/** Returns the path of the mark of a database. */
export function markOf(path: string): string {
  return `${path}-mark`;
}

/** Counter of the synchronized write transactions of one connection, and writer of the mark. */
export class HighWaterMark {
  readonly #connection: SqliteConnection;
  readonly #path: string;
  /** Prepared {@link INCREMENT}; null before {@link start}, when the table may not exist. */
  #increment: ReturnType<SqliteConnection["prepare"]> | null = null;
  /** Descriptor of the open file; null before the first write. */
  #file: number | null = null;

  /** @param path - Path of the database. */
  constructor(connection: SqliteConnection, path: string) {
    this.#connection = connection;
    this.#path = markOf(path);
  }

  /** Starts to count. The tables must exist. */
  start(): void {
    this.#increment = this.#connection.prepare(INCREMENT);
  }

  /**
   * Counts the open transaction, whose commit must be synchronized with the disk.
   *
   * @returns a function to call after the commit, which writes the mark.
   */
  increment(): () => void {
    const [row] = (this.#increment?.all(new Date().toISOString()) ?? []) as { count: number }[];
    return () => {
      if (row !== undefined) this.#write(row.count);
    };
  }

  /** Closes the file and, if the database contains its whole write-ahead log, removes it. */
  close({ isComplete }: { readonly isComplete: boolean }): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
    if (isComplete) rmSync(this.#path, { force: true });
  }

  /** Writes the mark. */
  #write(count: number): void {
    try {
      this.#file ??= openSync(this.#path, constants.O_WRONLY | constants.O_CREAT, 0o600);
      writeSync(this.#file, `${String(count).padStart(DIGITS, "0")}\n`, 0);
    } catch {
      // The transaction is committed, so this is no failure of its caller. An older number is valid; the next commit tries again.
    }
  }
}

/** Returns the last counted transaction of a database; 0 for a database of a version before such numbers. */
function lastTransaction(connection: SqliteConnection): LastTransaction {
  if (!hasTable(connection, "transaction_count")) return { count: 0, committedAt: null };
  const [row] = queryOnce(connection, "count, committed_at", "transaction_count") as [number, string | null][];
  const [count, committedAt] = row ?? [0, null];
  return { count, committedAt };
}

/**
 * Checks that a database has every transaction up to its mark.
 *
 * @param path - Path of the database.
 * @param connection - Connection to the database; null if the file is missing or empty.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` if transactions are missing.
 * @throws ConfigError `E_CONFIG` if the mark cannot be read.
 */
export async function requireMarked(path: string, connection: SqliteConnection | null): Promise<void> {
  const mark = await readMark(markOf(path));
  if (mark === null) return;
  const last = connection === null ? { count: 0, committedAt: null } : lastTransaction(connection);
  if (last.count >= mark) return;
  const { mtime } = await stat(markOf(path));
  const walProblem = (await sizeOf(`${path}-wal`)) > 0 ? "is damaged or of another time" : "is missing";
  const since = last.committedAt === null ? "" : ` after ${last.committedAt}`;
  throw new DataCorruptedError(
    `The database '${path}' lacks acknowledged changes: expected transaction ${mark} of ${mtime.toISOString()}, found ${last.count}; the changes${since} of ${mark - last.count} transactions are missing. ` +
      `Its write-ahead log '${path}-wal' ${walProblem}. Nothing was changed. Put whetstone.db and whetstone.db-wal of the same time back, or make another data directory from a backup with \`whetstone restore\`. ` +
      `To continue without the missing changes, delete '${markOf(path)}'; files that belong to them then move to the quarantine`,
    { param: "dataDir" },
  );
}

/** Reads a mark. Returns null for a missing file, and for a file without a number, which a failure of the system may leave. */
async function readMark(path: string): Promise<number | null> {
  try {
    const [digits] = /^\d+/u.exec(await readRegularFile(path, { maxBytes: MAX_BYTES })) ?? [];
    return digits === undefined ? null : Number(digits);
  } catch (cause) {
    if (isMissingFile(cause)) return null;
    throw new ConfigError(
      `Expected '${path}' to be the number of the last transaction of whetstone.db: ${messageOf(cause)}. Make the file readable, or, if nothing of the database was lost, move it away`,
      { cause, param: "dataDir" },
    );
  }
}
