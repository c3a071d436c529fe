/** Recognition of errors that a full disk causes. */

import { WhetstoneError } from "../errors.ts";

/** System error codes of a write without free space: file system full, quota exhausted. */
const SYSTEM_CODES: readonly unknown[] = ["ENOSPC", "EDQUOT"];

/**
 * SQLite's extended result codes for a full disk: SQLITE_FULL, SQLITE_IOERR_WRITE (reported for an exhausted quota) and
 * SQLITE_IOERR_SHMSIZE. Source: https://sqlite.org/rescode.html
 */
const SQLITE_CODES: readonly unknown[] = [13, 778, 4874];

/** Max levels of `cause` that are followed: for example an engine's error inside a job's error inside a route's error. */
const MAX_DEPTH = 6;

/** Returns whether an error, or one of its causes, reports that a file system is full. */
export function isNoSpace(error: unknown): boolean {
  let current: unknown = error;
  for (let depth = 0; depth < MAX_DEPTH && typeof current === "object" && current !== null; depth++) {
    const { code, errcode, cause } = current as { readonly code?: unknown; readonly errcode?: unknown; readonly cause?: unknown };
    if (SYSTEM_CODES.includes(code) || (code === "ERR_SQLITE_ERROR" && SQLITE_CODES.includes(errcode))) return true;
    if (WhetstoneError.isInstance(current) && current.code === "E_NO_SPACE") return true;
    current = cause;
  }
  return false;
}
