/** Errors of the connection to a shared database. */
import { UnavailableError } from "../../base/errors.ts";

/**
 * The database cannot be reached, or has ended the connection; a statement outside of a transaction may have been executed. Always
 * retryable.
 */
export class DatabaseUnavailableError extends UnavailableError {}

/**
 * The connection was lost during the commit of a transaction, and the database could not be asked for the outcome: the transaction may be
 * committed. Always retryable.
 */
export class UnknownOutcomeError extends DatabaseUnavailableError {}
