/** Sampling settings under which a turn's log-probabilities are not the plain softmax that training computes. */

import { FIELD_ROWS, SAMPLING_EFFECTS, type FieldsWith, type SamplingEffect } from "../schema/chat-fields.ts";
import type { ChatCompletionRequest } from "../schema/index.ts";

/** Name of a field that changes the sampling distribution. */
type Key = FieldsWith<{ readonly changes: SamplingEffect }>;

/**
 * Sampling settings that made a turn's distribution differ from the plain softmax of the weights, under the request's field names: a number
 * as sent, `true` for any other value (lists and objects may be long). Settings without effect are absent.
 */
export type SamplingKeys = { readonly [Name in Key]?: Name extends FieldsWith<{ readonly type: "number" | "integer" }> ? number : true };

/** Request fields that change the sampling distribution, with the kind of change and a test for values without effect. */
const SAMPLING_FIELDS = FIELD_ROWS.filter(([, { changes }]) => (SAMPLING_EFFECTS as readonly string[]).includes(changes)).map(
  ([key, field]) => {
    const defaultValue = field.default ?? field.modelDefault;
    const isDefault = typeof defaultValue === "object" ? isEmptyObject : (value: unknown): boolean => value === defaultValue;
    return { key: key as Key, kind: field.changes as SamplingEffect, isNeutral: field.neutral ?? isDefault };
  },
);

/** Whether a value is a list or an object without entries. */
function isEmptyObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/**
 * Extracts the settings of a request that make the sampling distribution differ from the plain softmax, from which training computes its
 * log-probabilities. Spread the result into each choice; preflight reads it.
 *
 * Settings absent from the request are not reported, although a service may have defaults of its own.
 *
 * @param request - Chat request of the turn.
 * @returns Settings with an effect; `{}` for a plain request.
 * @example
 * ```ts
 * samplingOf({ messages: [], temperature: 0.7, top_p: 1 }); // { temperature: 0.7 }
 * ```
 */
export function samplingOf(request: ChatCompletionRequest): SamplingKeys {
  const effective: Partial<Record<Key, number | true>> = {};
  for (const { key, isNeutral } of SAMPLING_FIELDS) {
    const value: unknown = request[key];
    if (value !== undefined && value !== null && !isNeutral(value)) effective[key] = typeof value === "number" ? value : true;
  }
  return effective as SamplingKeys;
}

/** Returns the kinds of change between a choice's distribution and the plain softmax, according to the sampling settings it carries. */
export function samplingKinds(choice: Readonly<Record<string, unknown>>): ReadonlySet<SamplingEffect> {
  const kinds = new Set<SamplingEffect>();
  for (const { key, kind, isNeutral } of SAMPLING_FIELDS) {
    const value = choice[key];
    if (value !== undefined && value !== null && !isNeutral(value)) kinds.add(kind);
  }
  return kinds;
}
