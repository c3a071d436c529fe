import { WhetstoneError } from "../errors.ts";

/** System errors of a write that found no room: file system full, quota used up. */
const SYSTEM_CODES: readonly unknown[] = ["ENOSPC", "EDQUOT"];

/**
 * SQLite's extended result codes for the same: SQLITE_FULL, SQLITE_IOERR_WRITE (a quota reports itself so) and SQLITE_IOERR_SHMSIZE.
 * Source: https://sqlite.org/rescode.html
 */
const SQLITE_CODES: readonly unknown[] = [13, 778, 4874];

/** Levels of `cause` that are followed: an engine's error in a job's error in a route's error. */
const MAX_DEPTH = 6;

/** Reports whether an error, or one that caused it, says that a file system has no room. */
export function isNoSpace(error: unknown): boolean {
  let each: unknown = error;
  for (let depth = 0; depth < MAX_DEPTH && typeof each === "object" && each !== null; depth++) {
    const { code, errcode, cause } = each as { readonly code?: unknown; readonly errcode?: unknown; readonly cause?: unknown };
    if (SYSTEM_CODES.includes(code) || (code === "ERR_SQLITE_ERROR" && SQLITE_CODES.includes(errcode))) return true;
    if (WhetstoneError.isInstance(each) && each.code === "E_NO_SPACE") return true;
    each = cause;
  }
  return false;
}
