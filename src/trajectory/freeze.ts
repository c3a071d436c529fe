/** What was frozen down to its leaves: a long history is not walked again when the trajectory around it is made. */
const whole = new WeakSet<object>();

/** Freezes a JSON value down to its leaves and gives it back. */
export function deepFreeze<T>(value: T): T {
  freezeInside(value);
  if (typeof value === "object" && value !== null) whole.add(value);
  return value;
}

function freezeInside(value: unknown): void {
  // Whether the value itself is frozen says nothing about its inside.
  if (typeof value !== "object" || value === null || whole.has(value)) return;
  Object.freeze(value);
  // Arrays of numbers (token ids) are frozen without visiting their items: they can be long, and numbers have no inside.
  if (Array.isArray(value) && typeof value[0] === "number") return;
  for (const inner of Object.values(value)) freezeInside(inner);
}
