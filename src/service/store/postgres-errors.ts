/** Errors of Postgres and of connections to it, by code: https://www.postgresql.org/docs/current/errcodes-appendix.html */
import { ArgumentError, NoSpaceError } from "../../base/errors.ts";
import { messageOf } from "../../base/util/values.ts";
import { DatabaseUnavailableError } from "./database-errors.ts";

/** Codes of a transaction that conflicts with another one and may succeed if repeated: serialization failure, deadlock. */
const CONFLICTS: ReadonlySet<string> = new Set(["40001", "40P01"]);

/**
 * Classes of codes after which the same statement may succeed later: connections (08), shutdown and start (57P), too few resources (53, except
 * for a full disk).
 */
const TRANSIENT_CLASSES = /^(?:08|57P|53(?!100))/u;
/** Single codes of this kind: lock timeout, statement timeout, ended idle transaction, server that became a standby. */
const TRANSIENT_CODES: ReadonlySet<string> = new Set(["55P03", "57014", "25P03", "25006"]);

/** Codes of system errors of a connection. */
const SYSTEM_CODES: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
  "ETIMEDOUT",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EHOSTDOWN",
]);
/** Messages of the driver without a code: a lost connection, a timeout, a pool that ends because the service stops. */
const CONNECTION_MESSAGES =
  /^(?:Connection terminated|Connection ended|timeout (?:exceeded|expired)|Query read timeout|Client has encountered|Client was closed|Cannot use a pool after)/u;

const DISK_FULL = "53100";
const UNIQUE_VIOLATION = "23505";
/** Text with the character U+0000, which Postgres cannot store. */
const UNTRANSLATABLE: ReadonlySet<string> = new Set(["22021", "22P05"]);

/** Returns the code of an error of the server or of the system; null without one. */
export function codeOf(error: unknown): string | null {
  const code = typeof error === "object" && error !== null && "code" in error ? error.code : null;
  return typeof code === "string" ? code : null;
}

/** Whether a transaction failed because of a conflict with another one, and may succeed if repeated. */
export function isConflict(error: unknown): boolean {
  return CONFLICTS.has(codeOf(error) ?? "");
}

/** Whether a statement violates a unique constraint. */
export function isUniqueViolation(error: unknown): boolean {
  return codeOf(error) === UNIQUE_VIOLATION;
}

/** Whether a connection has ended, or a statement got no answer. Errors that the server sends on a connection have other codes. */
export function isConnectionLoss(error: unknown): boolean {
  const code = codeOf(error);
  return code === null ? CONNECTION_MESSAGES.test(messageOf(error)) : SYSTEM_CODES.has(code);
}

/** Whether the same statement may succeed later: the connection or the server failed, or a time limit was exceeded. */
function isTransient(error: unknown): boolean {
  const code = codeOf(error) ?? "";
  return isConnectionLoss(error) || TRANSIENT_CLASSES.test(code) || TRANSIENT_CODES.has(code);
}

/**
 * Returns the error that callers get for an error of the driver: a retryable `E_UNAVAILABLE` if the same statement may succeed later,
 * `E_NO_SPACE` for a full disk, `E_ARGUMENT` for text that cannot be stored, and otherwise the error itself.
 *
 * @param where - Server and database for the message, without a password.
 */
export function toDatabaseError(error: unknown, where: string): unknown {
  const code = codeOf(error) ?? "";
  if (code === DISK_FULL) {
    const message = "The disk of the service's database is full: nothing of the request was kept. Make room there, and send it again";
    return new NoSpaceError(message, { cause: error });
  }
  if (UNTRANSLATABLE.has(code)) {
    return new ArgumentError("Expected text without the character U+0000, which the service's database cannot store", { cause: error });
  }
  if (!isTransient(error)) return error;
  const message = `The service's database ${where} cannot be used now: ${messageOf(error) || code}. Send the request again`;
  return new DatabaseUnavailableError(message, { cause: error });
}
