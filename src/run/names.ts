/** Names of keys in the files of a run directory. */

import { snakeCase } from "../base/util/letter-case.ts";

/** Copies plain data, converting object keys to snake_case. */
export function toDisk(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toDisk);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [snakeCase(key), toDisk(member)]));
}
