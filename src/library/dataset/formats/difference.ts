/**
 * Differences between a value and the value that is rebuilt from a format that cannot hold all of it. A writer keeps the difference
 * elsewhere; a reader applies it to the rebuilt value.
 */
import { isDeepStrictEqual } from "node:util";
import { isJsonObject } from "./documents.ts";

/**
 * Returns the parts of a value that differ from a rebuilt value; undefined if both are equal. Objects are compared key by key;
 * null, an empty array and an absent key are equal. `overlaid(rebuilt, valueDifference(value, rebuilt))` equals `value`.
 */
export function valueDifference(value: unknown, rebuilt: unknown): unknown {
  if (isDeepStrictEqual(value, rebuilt) || (isAbsent(value) && isAbsent(rebuilt))) return undefined;
  if (!isJsonObject(value) || !isJsonObject(rebuilt)) return value ?? null;
  const entries = [...new Set([...Object.keys(value), ...Object.keys(rebuilt)])]
    .map((key) => [key, valueDifference(value[key], rebuilt[key])] as const)
    .filter(([, part]) => part !== undefined);
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/** Returns a rebuilt value with a difference from {@link valueDifference} applied. */
export function overlaid(rebuilt: unknown, difference: unknown): unknown {
  if (difference === undefined) return rebuilt;
  if (!isJsonObject(rebuilt) || !isJsonObject(difference)) return difference;
  const changed = Object.entries(difference).map(([key, part]) => [key, overlaid(rebuilt[key], part)] as const);
  return { ...rebuilt, ...Object.fromEntries(changed) };
}

/** Whether a value counts as an absent key. */
function isAbsent(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}
