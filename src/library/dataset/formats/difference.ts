/**
 * Differences between a value and the value that is rebuilt from a format that cannot hold all of it. A writer keeps the difference
 * elsewhere; a reader applies it to the rebuilt value.
 */
import { isDeepStrictEqual } from "node:util";
import { isJson } from "./documents.ts";

/**
 * Returns the parts of a value that a rebuilt value lacks or has otherwise; undefined if both are equal. Objects are compared key by key;
 * null, an empty array and an absent key are equal. `overlaid(rebuilt, valueDifference(value, rebuilt))` equals `value`.
 */
export function valueDifference(value: unknown, rebuilt: unknown): unknown {
  if (isDeepStrictEqual(value, rebuilt) || (isAbsent(value) && isAbsent(rebuilt))) return undefined;
  if (!isJson(value) || !isJson(rebuilt)) return value ?? null;
  const entries = [...new Set([...Object.keys(value), ...Object.keys(rebuilt)])]
    .map((key) => [key, valueDifference(value[key], rebuilt[key])] as const)
    .filter(([, part]) => part !== undefined);
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/** Returns a rebuilt value with a difference from {@link valueDifference} applied. */
export function overlaid(rebuilt: unknown, difference: unknown): unknown {
  if (difference === undefined) return rebuilt;
  if (!isJson(rebuilt) || !isJson(difference)) return difference;
  return { ...rebuilt, ...Object.fromEntries(Object.entries(difference).map(([key, inner]) => [key, overlaid(rebuilt[key], inner)])) };
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}
