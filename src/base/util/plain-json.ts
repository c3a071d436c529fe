/**
 * Whether a value is the same after `JSON.stringify` and `JSON.parse`: null, booleans, finite numbers, strings, and arrays and plain objects of
 * them. Undefined members of objects are allowed, because readers do not distinguish them from absent ones.
 */
export function isPlainJson(value: unknown): boolean {
  if (value === null || typeof value === "boolean" || typeof value === "string") return true;
  if (typeof value === "number") return Number.isFinite(value) && !Object.is(value, -0);
  if (Array.isArray(value)) return value.every(isPlainJson);
  if (typeof value !== "object") return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  return Object.values(value).every((member) => member === undefined || isPlainJson(member));
}
