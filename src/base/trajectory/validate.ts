/** Fast validation of trajectories: the schema validates everything except the long arrays, which are validated by hand. */

import type { z } from "zod";
import { trajectory, trajectoryGroup, type Trajectory, type TrajectoryGroup } from "../schema/index.ts";
import { isRecord } from "../util/values.ts";

type Json = Record<string, unknown>;
/** Long arrays of a choice, validated by hand and therefore withheld from the schema. */
interface Lifted {
  readonly token_ids?: unknown;
  readonly prompt_token_ids?: unknown;
  readonly logprobs?: Json;
}
/** Value without its long arrays. */
interface Lightened {
  readonly value: unknown;
  /** Puts the arrays into the schema's parsed result. */
  readonly restore: (parsed: unknown) => void;
}

/** Value of absent `top_logprobs`, as the schema's default. */
const NO_ALTERNATIVES = Object.freeze([]);

/**
 * Validates a value just parsed from JSON like `schema.trajectory`, several times faster.
 *
 * Most of a trajectory is token ids and log-probabilities. They are validated by hand, the rest by the schema. The schema alone validates a
 * value that turns out invalid, so that messages and paths are the schema's. Takes ownership of the value: its arrays become part of the
 * result.
 */
export function validateTrajectory(value: unknown): z.ZodSafeParseResult<Trajectory> {
  return validate(trajectory, value, lightTrajectory);
}

/** Validates a value just parsed from JSON like `schema.trajectoryGroup`; see {@link validateTrajectory}. */
export function validateTrajectoryGroup(value: unknown): z.ZodSafeParseResult<TrajectoryGroup> {
  return validate(trajectoryGroup, value, lightGroup);
}

function validate<T>(schema: z.ZodType<T>, value: unknown, lighten: (value: Json) => Lightened | null): z.ZodSafeParseResult<T> {
  const light = isRecord(value) ? lighten(value) : null;
  if (light === null) return schema.safeParse(value);
  const result = schema.safeParse(light.value);
  if (!result.success) return schema.safeParse(value);
  light.restore(result.data);
  return result;
}

function lightGroup(value: Json): Lightened | null {
  return lightKeys(value, { trajectories: lightTrajectory });
}

function lightTrajectory(value: Json): Lightened | null {
  return lightKeys(value, { messages_and_choices: lightItem, additional_histories: lightHistory });
}

function lightHistory(value: Json): Lightened | null {
  return lightKeys(value, { messages_and_choices: lightItem });
}

/** Removes the long arrays of the objects in the arrays under some keys; returns null if no array was removed. */
function lightKeys(value: Json, keys: Readonly<Record<string, (item: Json) => Lightened | null>>): Lightened | null {
  const changed: Json = {};
  const restores: ((parsed: unknown) => void)[] = [];
  for (const [key, lighten] of Object.entries(keys)) {
    const list = value[key];
    if (!Array.isArray(list)) continue;
    const lights = list.map((item: unknown) => (isRecord(item) ? lighten(item) : null));
    if (lights.every((light) => light === null)) continue;
    changed[key] = list.map((item: unknown, index) => lights[index]?.value ?? item);
    restores.push((parsed) => {
      const made = (parsed as Json)[key] as readonly unknown[];
      lights.forEach((light, index) => light?.restore(made[index]));
    });
  }
  if (restores.length === 0) return null;
  return { value: { ...value, ...changed }, restore: (parsed) => restores.forEach((restore) => restore(parsed)) };
}

/**
 * Removes the long arrays of a choice. Returns null for an item with a `role`: it could also be a message, which has other rules, so the
 * schema decides.
 */
function lightItem(item: Json): Lightened | null {
  if (!isRecord(item["message"]) || "role" in item) return null;
  const lifted = liftedOf(item);
  if (lifted === null) return null;
  const { logprobs, ...ids } = lifted;
  const idKeys = Object.keys(ids) as (keyof typeof ids)[];
  const value: Json = { ...item, ...(logprobs === undefined ? {} : { logprobs: { ...logprobs, content: null } }) };
  for (const key of idKeys) value[key] = null;
  return {
    value,
    restore: (parsed) => {
      for (const key of idKeys) (parsed as Json)[key] = ids[key];
      if (logprobs === undefined) return;
      const entries = logprobs["content"] as Json[];
      for (const entry of entries) if (entry["top_logprobs"] === undefined) entry["top_logprobs"] = NO_ALTERNATIVES;
      ((parsed as Json)["logprobs"] as Json)["content"] = entries;
    },
  };
}

/** Returns the long arrays of a choice; null if it has no such array, or an invalid one. */
function liftedOf(item: Json): Lifted | null {
  const { token_ids: ids, prompt_token_ids: promptIds, logprobs } = item;
  const hasIds = Array.isArray(ids);
  const hasPromptIds = Array.isArray(promptIds);
  const content = isRecord(logprobs) ? logprobs["content"] : undefined;
  const hasContent = Array.isArray(content);
  if (!hasIds && !hasPromptIds && !hasContent) return null;
  if ((hasIds && !areIntegers(ids)) || (hasPromptIds && !areIntegers(promptIds))) return null;
  if (hasContent && !areEntries(content, true)) return null;
  return {
    ...(hasIds ? { token_ids: ids } : {}),
    ...(hasPromptIds ? { prompt_token_ids: promptIds } : {}),
    ...(hasContent ? { logprobs: logprobs as Json } : {}),
  };
}

function areIntegers(list: readonly unknown[]): boolean {
  for (const value of list) if (!Number.isSafeInteger(value)) return false;
  return true;
}

/** Whether all entries match `schema.logprobEntry`, or `schema.topLogprobEntry` if `hasAlternatives` is false. */
function areEntries(list: readonly unknown[], hasAlternatives: boolean): boolean {
  for (const entry of list) {
    if (!isRecord(entry)) return false;
    const { token, logprob, bytes, top_logprobs: top } = entry;
    if (typeof token !== "string" || !Number.isFinite(logprob)) return false;
    if (bytes !== undefined && bytes !== null && !(Array.isArray(bytes) && areIntegers(bytes))) return false;
    if (hasAlternatives && top !== undefined && !(Array.isArray(top) && areEntries(top, false))) return false;
  }
  return true;
}
