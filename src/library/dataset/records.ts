/** Schema version of stored records, and the removal of absent members. */
import { DataError } from "../../base/errors.ts";

/** Format version of records and `metadata.json` (`schema_version`). Increased when the meaning of a field changes. */
export const SCHEMA_VERSION = 1;
/** Key of the version in a record. */
const VERSION_KEY = "schema_version";

/** Adds the schema version to a record. Readers of other packages ignore it like any unknown key. */
export function versioned<T extends object>(record: T): T & { readonly schema_version: number } {
  return { [VERSION_KEY]: SCHEMA_VERSION, ...record } as T & { readonly schema_version: number };
}

/**
 * Checks and removes the schema version of a record. A record without a version counts as version 1: the wire, other writers and
 * append-only files omit it.
 *
 * @param value - Parsed line.
 * @param where - File and line, for messages.
 * @throws DataError `E_DATA` for a version newer than this build's, or one that is not a positive integer.
 */
export function unversioned(value: unknown, where: string): unknown {
  if (typeof value !== "object" || value === null || !(VERSION_KEY in value)) return value;
  const { [VERSION_KEY]: version, ...record } = value;
  checkVersion(version, where);
  return record;
}

/** Checks a schema version. @throws DataError `E_DATA` as {@link unversioned}. */
export function checkVersion(version: unknown, where: string): void {
  if (typeof version !== "number" || !Number.isInteger(version) || version < 1) {
    throw new DataError(`${where}: expected \`${VERSION_KEY}\` to be a whole number from 1, got ${JSON.stringify(version)}`);
  }
  if (version > SCHEMA_VERSION) {
    throw new DataError(
      `${where}: has schema version ${version}; this build of whetstone reads up to version ${SCHEMA_VERSION}. Read it with a newer one`,
    );
  }
}

/** Returns a copy of an object without the members that are undefined or null. */
export function present<T extends object>(members: T): { readonly [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined && value !== null)) as {
    readonly [K in keyof T]?: NonNullable<T[K]>;
  };
}
