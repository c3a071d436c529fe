/** Differences between a value and its form in a format that cannot hold all of it. */
import { isDeepStrictEqual } from "node:util";
import { isJson } from "./documents.ts";

/**
 * Returns the part of a value that a rebuilt value lacks; undefined if both are equal. Objects are compared key by key; null, an empty array
 * and an absent key are equal. `overlaid(rebuilt, difference(value, rebuilt))` equals `value`.
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
export function overlaid(rebuilt: unknown, part: unknown): unknown {
  if (part === undefined) return rebuilt;
  if (!isJson(rebuilt) || !isJson(part)) return part;
  return { ...rebuilt, ...Object.fromEntries(Object.entries(part).map(([key, inner]) => [key, overlaid(rebuilt[key], inner)])) };
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}
