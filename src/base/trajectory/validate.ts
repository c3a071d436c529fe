/** Fast validation of trajectories: the schema validates everything except the long arrays, which are validated by hand. */

import type { z } from "zod";
import { trajectory, trajectoryGroup, type Trajectory, type TrajectoryGroup } from "../schema/index.ts";
import { isRecord } from "../util/values.ts";

/** Object parsed from JSON. */
type Json = Record<string, unknown>;
/** Long arrays of a choice, validated by hand and therefore withheld from the schema. */
interface LongArrays {
  readonly token_ids?: unknown;
  readonly prompt_token_ids?: unknown;
  readonly logprobs?: Json;
}
/** Value without its long arrays, which can be put back. */
interface WithoutArrays {
  readonly value: unknown;
  /** Puts the arrays into `parsed`, the result of the schema for `value`. */
  readonly restore: (parsed: unknown) => void;
}

/** Value of absent `top_logprobs`, equal to the schema's default. */
const NO_ALTERNATIVES = Object.freeze([]);

/**
 * Validates a value just parsed from JSON like `schema.trajectory`, several times faster.
 *
 * Most of a trajectory is token ids and log-probabilities. They are validated by hand, the rest by the schema. The schema alone validates a
 * value that turns out invalid, so that messages and paths are the schema's. Takes ownership of the value: its arrays become part of the
 * result.
 */
export function validateTrajectory(value: unknown): z.ZodSafeParseResult<Trajectory> {
  return validate(trajectory, value, trajectoryWithoutArrays);
}

/** Validates a value just parsed from JSON like `schema.trajectoryGroup`; see {@link validateTrajectory}. */
export function validateTrajectoryGroup(value: unknown): z.ZodSafeParseResult<TrajectoryGroup> {
  return validate(trajectoryGroup, value, groupWithoutArrays);
}

/** Validates a value by its schema. @param remove - Removes the long arrays; returns null if the schema has to validate the whole value. */
function validate<T>(schema: z.ZodType<T>, value: unknown, remove: (value: Json) => WithoutArrays | null): z.ZodSafeParseResult<T> {
  const reduced = isRecord(value) ? remove(value) : null;
  if (reduced === null) return schema.safeParse(value);
  const result = schema.safeParse(reduced.value);
  if (!result.success) return schema.safeParse(value);
  reduced.restore(result.data);
  return result;
}

/** Removes the long arrays of the trajectories of a group. */
function groupWithoutArrays(value: Json): WithoutArrays | null {
  return withoutArraysIn(value, { trajectories: trajectoryWithoutArrays });
}

/** Removes the long arrays of all conversations of a trajectory. */
function trajectoryWithoutArrays(value: Json): WithoutArrays | null {
  return withoutArraysIn(value, { messages_and_choices: choiceWithoutArrays, additional_histories: historyWithoutArrays });
}

/** Removes the long arrays of one additional conversation. */
function historyWithoutArrays(value: Json): WithoutArrays | null {
  return withoutArraysIn(value, { messages_and_choices: choiceWithoutArrays });
}

/** Removes the long arrays of the objects in the arrays under some keys; returns null if no array was removed. */
function withoutArraysIn(value: Json, keys: Readonly<Record<string, (item: Json) => WithoutArrays | null>>): WithoutArrays | null {
  const changed: Json = {};
  const restores: ((parsed: unknown) => void)[] = [];
  for (const [key, remove] of Object.entries(keys)) {
    const list = value[key];
    if (!Array.isArray(list)) continue;
    const reducedItems = list.map((item: unknown) => (isRecord(item) ? remove(item) : null));
    if (reducedItems.every((reduced) => reduced === null)) continue;
    changed[key] = list.map((item: unknown, index) => reducedItems[index]?.value ?? item);
    restores.push((parsed) => {
      const parsedItems = (parsed as Json)[key] as readonly unknown[];
      reducedItems.forEach((reduced, index) => reduced?.restore(parsedItems[index]));
    });
  }
  if (restores.length === 0) return null;
  return { value: { ...value, ...changed }, restore: (parsed) => restores.forEach((restore) => restore(parsed)) };
}

/**
 * Removes the long arrays of a choice. Returns null for an item with a `role`: it could also be a message, which has other rules, so the
 * schema decides.
 */
function choiceWithoutArrays(item: Json): WithoutArrays | null {
  if (!isRecord(item["message"]) || "role" in item) return null;
  const longArrays = longArraysOf(item);
  if (longArrays === null) return null;
  const { logprobs, ...ids } = longArrays;
  const withoutIds = Object.fromEntries(Object.keys(ids).map((key) => [key, null]));
  const withoutContent = logprobs === undefined ? {} : { logprobs: { ...logprobs, content: null } };
  return {
    value: { ...item, ...withoutIds, ...withoutContent },
    restore: (parsed) => {
      Object.assign(parsed as Json, ids);
      if (logprobs !== undefined) ((parsed as Json)["logprobs"] as Json)["content"] = withAlternatives(logprobs["content"] as Json[]);
    },
  };
}

/** Sets absent `top_logprobs` of valid entries to the schema's default, and returns the entries. */
function withAlternatives(entries: Json[]): Json[] {
  for (const entry of entries) if (entry["top_logprobs"] === undefined) entry["top_logprobs"] = NO_ALTERNATIVES;
  return entries;
}

/** Returns the long arrays of a choice; null if it has no such array, or an invalid one. */
function longArraysOf(item: Json): LongArrays | null {
  const { token_ids: ids, prompt_token_ids: promptIds, logprobs } = item;
  const hasIds = Array.isArray(ids);
  const hasPromptIds = Array.isArray(promptIds);
  const content = isRecord(logprobs) ? logprobs["content"] : undefined;
  const hasContent = Array.isArray(content);
  if (!hasIds && !hasPromptIds && !hasContent) return null;
  if ((hasIds && !areIntegers(ids)) || (hasPromptIds && !areIntegers(promptIds))) return null;
  if (hasContent && !content.every(isLogprobEntry)) return null;
  return {
    ...(hasIds ? { token_ids: ids } : {}),
    ...(hasPromptIds ? { prompt_token_ids: promptIds } : {}),
    ...(hasContent ? { logprobs: logprobs as Json } : {}),
  };
}

/** Whether an array holds integers only. */
function areIntegers(list: readonly unknown[]): boolean {
  return list.every(Number.isSafeInteger);
}

/** Whether a value matches `schema.logprobEntry`. */
function isLogprobEntry(entry: unknown): boolean {
  if (!isTopLogprobEntry(entry)) return false;
  const { top_logprobs: alternatives } = entry;
  return alternatives === undefined || (Array.isArray(alternatives) && alternatives.every(isTopLogprobEntry));
}

/** Whether a value matches `schema.topLogprobEntry`. */
function isTopLogprobEntry(entry: unknown): entry is Json {
  if (!isRecord(entry)) return false;
  const { token, logprob, bytes } = entry;
  if (typeof token !== "string" || !Number.isFinite(logprob)) return false;
  return bytes === undefined || bytes === null || (Array.isArray(bytes) && areIntegers(bytes));
}
