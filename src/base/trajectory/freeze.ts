/** Recursive freezing of recorded messages, choices and trajectories. */

/** Objects already frozen recursively, so that a long history is not walked again when the trajectory around it is frozen. */
const deeplyFrozen = new WeakSet<object>();

/** Freezes a JSON value recursively and returns it. */
export function deepFreeze<T>(value: T): T {
  freezeInside(value);
  if (typeof value === "object" && value !== null) deeplyFrozen.add(value);
  return value;
}

/** Freezes a value and all nested values, except inside of objects that {@link deepFreeze} has frozen before. */
function freezeInside(value: unknown): void {
  // `Object.isFrozen` would not suffice: it does not cover nested values.
  if (typeof value !== "object" || value === null || deeplyFrozen.has(value)) return;
  Object.freeze(value);
  // Arrays of numbers (token ids) can be long and have no nested values, so their items are not visited.
  if (Array.isArray(value) && typeof value[0] === "number") return;
  for (const nested of Object.values(value)) freezeInside(nested);
}
