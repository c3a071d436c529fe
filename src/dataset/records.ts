import { DataError } from "../errors.ts";

/** Version of what is written: a record's `schema_version`, and that of `metadata.json`. Raised when the meaning of a field changes. */
export const SCHEMA_VERSION = 1;
const KEY = "schema_version";

/** A record as it is written: with the version, which other readers pass over as they do any key they do not know. */
export function versioned<T extends object>(record: T): T & { readonly schema_version: number } {
  return { [KEY]: SCHEMA_VERSION, ...record } as T & { readonly schema_version: number };
}

/**
 * A record without its version. One that has none counts as version 1: that is how the wire, other writers and files that grow have it.
 *
 * @param where - File and line, for messages.
 * @throws DataError `E_DATA` for a version newer than this build's, or one that is no whole number.
 */
export function unversioned(value: unknown, where: string): unknown {
  if (typeof value !== "object" || value === null || !(KEY in value)) return value;
  const { [KEY]: version, ...record } = value;
  checkVersion(version, where);
  return record;
}

/** @throws DataError `E_DATA` as {@link unversioned}. */
export function checkVersion(version: unknown, where: string): void {
  if (typeof version !== "number" || !Number.isInteger(version) || version < 1) {
    throw new DataError(`${where}: expected \`${KEY}\` to be a whole number from 1, got ${JSON.stringify(version)}`);
  }
  if (version > SCHEMA_VERSION) {
    throw new DataError(
      `${where}: has schema version ${version}; this build of whetstone reads up to version ${SCHEMA_VERSION}. Read it with a newer one`,
    );
  }
}
