import { createHash } from "node:crypto";
import { ArgumentError } from "../errors.ts";
import type { Scalar, Trajectory } from "../trajectory/index.ts";

/**
 * What makes two trajectories the same: the conversation (`messages`, sampled turns as text), everything there is (`trajectory`:
 * token ids, reward and times, too), or a value of your own, such as `(t) => t.metadata.scenario_id`.
 */
export type Identity = "messages" | "trajectory" | ((trajectory: Trajectory) => Scalar | undefined);

/**
 * The text that stands for a trajectory under an identity: equal for equal ones, whatever order their keys are in.
 *
 * @throws ArgumentError `E_ARGUMENT` when a function gives undefined: a misspelt key would make all trajectories the same.
 */
export function identityText(trajectory: Trajectory, by: Identity): string {
  if (typeof by !== "function") return JSON.stringify(by === "messages" ? trajectory.messages() : trajectory, sortKeys);
  const key = by(trajectory);
  if (key !== undefined) return scalarText(key);
  const names = Object.keys(trajectory.metadata).slice(0, 10).join(", ") || "nothing";
  throw new ArgumentError(`Expected \`by\` to give a value of each trajectory, got undefined; its metadata has: ${names}`, { param: "by" });
}

/** Keeps `1` and `"1"`, and null and undefined, apart. */
export function scalarText(value: Scalar | undefined): string {
  return value === undefined ? "undefined" : JSON.stringify(value);
}

/** SHA-256 of texts; their borders count. */
export function digestOf(...texts: readonly string[]): Buffer {
  const hash = createHash("sha256");
  for (const text of texts) hash.update(`${text.length}:`).update(text);
  return hash.digest();
}

function sortKeys(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
