import { createHash } from "node:crypto";
import { ArgumentError } from "../errors.ts";
import type { Scalar, Trajectory } from "../trajectory/index.ts";

/**
 * Equality of trajectories: by conversation (`messages`, sampled turns as text), by the complete record (`trajectory`, including token ids,
 * reward and times), or by a custom key such as `(t) => t.metadata.scenario_id`.
 */
export type Identity = "messages" | "trajectory" | ((trajectory: Trajectory) => Scalar | undefined);

/**
 * Returns the text that identifies a trajectory: equal for equal trajectories, regardless of key order.
 *
 * @throws ArgumentError `E_ARGUMENT` when a function returns undefined: a misspelled key would make all trajectories equal.
 */
export function identityText(trajectory: Trajectory, by: Identity): string {
  if (typeof by !== "function") return JSON.stringify(by === "messages" ? trajectory.messages() : trajectory, sortKeys);
  const key = by(trajectory);
  if (key !== undefined) return scalarText(key);
  const names = Object.keys(trajectory.metadata).slice(0, 10).join(", ") || "nothing";
  throw new ArgumentError(`Expected \`by\` to give a value of each trajectory, got undefined; its metadata has: ${names}`, { param: "by" });
}

/** Converts a scalar to text that distinguishes `1` from `"1"`, and null from undefined. */
export function scalarText(value: Scalar | undefined): string {
  return value === undefined ? "undefined" : JSON.stringify(value);
}

/** Computes the SHA-256 of texts, including their lengths, so that the boundaries between texts matter. */
export function digestOf(...texts: readonly string[]): Buffer {
  const hash = createHash("sha256");
  for (const text of texts) hash.update(`${text.length}:`).update(text);
  return hash.digest();
}

function sortKeys(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
