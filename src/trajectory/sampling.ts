import type { ChatCompletionRequest } from "../schema/index.ts";

/**
 * Sampling settings that made a turn's distribution differ from the plain softmax of the weights, under the request's field names: a number
 * as sent, `true` for any other value (lists and objects may be long). Settings without effect are absent.
 */
export interface SamplingKeys {
  readonly temperature?: number;
  readonly top_p?: number;
  readonly top_k?: number;
  readonly min_p?: number;
  readonly frequency_penalty?: number;
  readonly presence_penalty?: number;
  readonly repetition_penalty?: number;
  readonly min_tokens?: number;
  readonly logit_bias?: true;
  readonly allowed_token_ids?: true;
  readonly bad_words?: true;
  readonly structured_outputs?: true;
  readonly response_format?: true;
  readonly tool_choice?: true;
}

type Key = keyof SamplingKeys;
type Kind = "temperature" | "truncated" | "biased" | "grammar";

const isEmpty = (value: unknown): boolean => typeof value === "object" && value !== null && Object.keys(value).length === 0;

/** Kind of change that each setting makes to the distribution, and its neutral values; null and absence are always neutral. */
const KEYS: Readonly<Record<Key, { readonly kind: Kind; readonly isNeutral: (value: unknown) => boolean }>> = {
  temperature: { kind: "temperature", isNeutral: (value) => value === 1 },
  top_p: { kind: "truncated", isNeutral: (value) => Number(value) >= 1 },
  top_k: { kind: "truncated", isNeutral: (value) => Number(value) <= 0 },
  min_p: { kind: "truncated", isNeutral: (value) => value === 0 },
  frequency_penalty: { kind: "biased", isNeutral: (value) => value === 0 },
  presence_penalty: { kind: "biased", isNeutral: (value) => value === 0 },
  repetition_penalty: { kind: "biased", isNeutral: (value) => value === 1 },
  min_tokens: { kind: "biased", isNeutral: (value) => value === 0 },
  logit_bias: { kind: "biased", isNeutral: isEmpty },
  allowed_token_ids: { kind: "biased", isNeutral: () => false },
  bad_words: { kind: "biased", isNeutral: isEmpty },
  structured_outputs: { kind: "grammar", isNeutral: isEmpty },
  response_format: { kind: "grammar", isNeutral: (value) => (value as { readonly type?: unknown }).type === "text" },
  tool_choice: { kind: "grammar", isNeutral: (value) => value === "auto" || value === "none" },
};

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
 * samplingOf({ messages, temperature: 0.7, top_p: 1, response_format: { type: "json_object" } }); // { temperature: 0.7, response_format: true }
 * ```
 */
export function samplingOf(request: ChatCompletionRequest): SamplingKeys {
  const kept: Partial<Record<Key, number | true>> = {};
  for (const key of Object.keys(KEYS) as Key[]) {
    const value: unknown = request[key];
    if (value === undefined || value === null || KEYS[key].isNeutral(value)) continue;
    kept[key] = typeof value === "number" ? value : true;
  }
  return kept as SamplingKeys;
}

/** Returns the kinds of change between a choice's distribution and the plain softmax, according to the sampling settings it carries. */
export function samplingKinds(choice: Readonly<Record<string, unknown>>): ReadonlySet<Kind> {
  const kinds = new Set<Kind>();
  for (const key of Object.keys(KEYS) as Key[]) {
    const value = choice[key];
    if (value !== undefined && value !== null && !KEYS[key].isNeutral(value)) kinds.add(KEYS[key].kind);
  }
  return kinds;
}
