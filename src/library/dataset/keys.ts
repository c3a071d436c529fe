/**
 * Equality of trajectories and messages: canonical texts, which are equal for equal values, and their hashes. `Dataset.dedupe` and
 * `Dataset.split` identify trajectories by them.
 */
import { createHash } from "node:crypto";
import { ArgumentError } from "../../base/errors.ts";
import type { RequestMessage } from "../../base/schema/index.ts";
import type { Scalar, Trajectory } from "../../base/trajectory/index.ts";
import { getOrInsert } from "../../base/util/values.ts";

/**
 * Criterion by which `Dataset.dedupe` and `Dataset.split` consider trajectories equal:
 *
 * - `messages`: equal conversations. Sampled turns are compared as text without token ids, and the ids of tool calls may differ;
 * - `trajectory`: equal records, including token ids, reward and times;
 * - a function: equal keys, such as `(t) => t.metadata.scenario_id`. A key of undefined is an error.
 */
export type Identity = "messages" | "trajectory" | ((trajectory: Trajectory) => Scalar | undefined);

/**
 * Returns the canonical text of a trajectory: two trajectories have the same text if and only if they are equal by the criterion. The order
 * of object keys has no influence.
 *
 * @throws ArgumentError `E_ARGUMENT` if the key function returns undefined, for example because of a misspelled metadata name, which would
 *   make all trajectories equal.
 */
export function identityText(trajectory: Trajectory, by: Identity): string {
  if (typeof by !== "function") return by === "messages" ? messagesText(trajectory.messages()) : JSON.stringify(trajectory, sortKeys);
  const key = by(trajectory);
  if (key !== undefined) return scalarText(key);
  const names = Object.keys(trajectory.metadata).slice(0, 10).join(", ") || "nothing";
  const message = `Expected \`by\` to return a value for each trajectory, got undefined; the metadata of this trajectory has: ${names}`;
  throw new ArgumentError(message, { param: "by" });
}

/**
 * Returns the canonical text of a conversation: two conversations have the same text if and only if they are equal up to a consistent
 * renaming of tool-call ids. The order of object keys has no influence.
 */
export function messagesText(messages: readonly RequestMessage[]): string {
  return JSON.stringify(withNumberedCalls(messages), sortKeys);
}

/** Replaces each tool-call id by its number in the order of first appearance, because servers choose ids at random. */
function withNumberedCalls(messages: readonly RequestMessage[]): RequestMessage[] {
  const numbers = new Map<string, string>();
  const numberOf = (id: string | null | undefined) => (typeof id === "string" ? getOrInsert(numbers, id, () => String(numbers.size)) : id);
  // Numbers are assigned in a fixed order: of each message first to the calls, then to the id of the answered call.
  return messages.map((message) => ({
    ...message,
    tool_calls: message.tool_calls?.map((call) => ({ ...call, id: numberOf(call.id) })) ?? message.tool_calls,
    tool_call_id: numberOf(message.tool_call_id),
  }));
}

/** Converts a scalar to its JSON text, and undefined to `undefined`: `1` and `"1"`, null and undefined have different texts. */
export function scalarText(value: Scalar | undefined): string {
  return value === undefined ? "undefined" : JSON.stringify(value);
}

/** Computes the SHA-256 of texts. Each text is preceded by its length, so `("ab", "c")` and `("a", "bc")` have different digests. */
export function digestOf(...texts: readonly string[]): Buffer {
  const hash = createHash("sha256");
  for (const text of texts) hash.update(`${text.length}:`).update(text);
  return hash.digest();
}

/** Returns a hash of texts as a fraction in [0, 1): the first six bytes of {@link digestOf}, the maximum that `readUIntBE` reads. */
export function hashFraction(...texts: readonly string[]): number {
  return digestOf(...texts).readUIntBE(0, 6) / 2 ** 48;
}

/** Replacer for `JSON.stringify`: returns objects with sorted keys, and other values unchanged. */
function sortKeys(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
