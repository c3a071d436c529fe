/** Equality of trajectories: texts and hashes by which `Dataset` removes duplicates and splits, and by which messages are compared. */
import { createHash } from "node:crypto";
import { ArgumentError } from "../../base/errors.ts";
import type { RequestMessage } from "../../base/schema/index.ts";
import type { Scalar, Trajectory } from "../../base/trajectory/index.ts";

/**
 * Criterion of equality of trajectories: the conversation (`messages`: sampled turns as text without token ids, tool calls without their
 * ids), the complete record (`trajectory`, including token ids, reward and times), or a key such as `(t) => t.metadata.scenario_id`. A key of
 * undefined is an error. Used by `Dataset.dedupe` and `Dataset.split`.
 */
export type Identity = "messages" | "trajectory" | ((trajectory: Trajectory) => Scalar | undefined);

/**
 * Returns a text that two trajectories have in common if and only if they are equal by the criterion; the order of object keys has no
 * influence.
 *
 * @throws ArgumentError `E_ARGUMENT` if the key function returns undefined, as it does for a misspelled metadata name: all trajectories would
 *   then be equal.
 */
export function identityText(trajectory: Trajectory, by: Identity): string {
  if (typeof by !== "function") return by === "messages" ? messagesText(trajectory.messages()) : JSON.stringify(trajectory, sortKeys);
  const key = by(trajectory);
  if (key !== undefined) return scalarText(key);
  const names = Object.keys(trajectory.metadata).slice(0, 10).join(", ") || "nothing";
  const message = `Expected \`by\` to give a value of each trajectory, got undefined; the metadata of this trajectory has: ${names}`;
  throw new ArgumentError(message, { param: "by" });
}

/** Returns a text that two lists of messages have in common if and only if they are equal except for the ids of tool calls. */
export function messagesText(messages: readonly RequestMessage[]): string {
  return JSON.stringify(withNumberedCalls(messages), sortKeys);
}

/** Replaces each tool-call id by the number of its first appearance in the conversation, because servers choose ids at random. */
function withNumberedCalls(messages: readonly RequestMessage[]): RequestMessage[] {
  const numbers = new Map<string, string>();
  /** Returns an object with the id in `key`, if it has one, replaced by its number. */
  const withNumber = <K extends string, T extends { readonly [Key in K]?: string | null | undefined }>(object: T, key: K): T => {
    const id = object[key];
    if (typeof id !== "string") return object;
    if (!numbers.has(id)) numbers.set(id, String(numbers.size));
    return { ...object, [key]: numbers.get(id) };
  };
  return messages.map((message) => {
    // The calls of a message come before the id that it answers, which fixes the order of the numbers.
    const calls = message.tool_calls?.map((call) => withNumber(call, "id"));
    return withNumber(calls === undefined ? message : { ...message, tool_calls: calls }, "tool_call_id");
  });
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

/** Returns a hash of texts as a fraction in [0, 1): the first 48 bits of {@link digestOf}, the largest size that `readUIntBE` reads. */
export function hashFraction(...texts: readonly string[]): number {
  return digestOf(...texts).readUIntBE(0, 6) / 2 ** 48;
}

/** Replacer of `JSON.stringify` that sorts the keys of objects, so that their order has no influence. */
function sortKeys(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
