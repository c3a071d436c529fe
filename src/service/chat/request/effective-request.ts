/** Conversion of an agent's request into the request that is sampled for its session. */
import type { Members } from "../../../dialects/index.ts";
import { ArgumentError } from "../../../base/errors.ts";
import type { SessionSampling } from "../../../base/schema/index.ts";
import { memberSpan, withMember } from "../text/json-members.ts";
import { toBoolean, toInteger } from "./coercion.ts";
import { isRecord } from "../../../base/util/values.ts";

/** Parts of the answer that the agent asked for. Session requests always have token ids and log-probabilities. */
export interface Asked {
  /** Whether the answer is streamed. */
  readonly isStream: boolean;
  /** Whether the answer has log-probabilities. */
  readonly logprobs: boolean;
  /** Whether the answer has token ids. */
  readonly tokenIds: boolean;
  /** Whether a stream ends with its token counts. */
  readonly usage: boolean;
  /** Number of choices. */
  readonly n: number;
}

/** Fields that a session sets in its requests. */
export interface SessionFields {
  readonly model: string;
  /** Fields for requests that do not set them. */
  readonly defaults: SessionSampling;
  /** Fields that replace the fields of a request. */
  readonly overrides: SessionSampling;
  /** Whether the session limits its output tokens. */
  readonly limitsTokens: boolean;
}

/** Request to sample. */
export interface EffectiveRequest {
  /** Fields of the body, with the fields of the session. */
  readonly fields: Members;
  readonly asked: Asked;
  /** Max output tokens of each choice, at least 1; null if the request does not limit them. */
  readonly maxTokens: number | null;
}

/** Max choices of a request: the log-probabilities of all are parsed and recorded at once. */
const MAX_CHOICES = 16;

/**
 * Two names of the limit of output tokens. A session's default for one name does not apply to a request with the other name, and a
 * session's override replaces both.
 */
const TOKEN_LIMIT_NAMES = ["max_completion_tokens", "max_tokens"];

/**
 * Applies a session to a request: its model, its sampling fields, token ids and log-probabilities.
 *
 * @throws ArgumentError `E_ARGUMENT` for more than {@link MAX_CHOICES} choices.
 */
export function effectiveRequest(given: Members, session: SessionFields): EffectiveRequest {
  const isAsked = (name: string): boolean => toBoolean(given[name]) === true;
  const asked: Asked = {
    isStream: isAsked("stream"),
    logprobs: isAsked("logprobs") && given["top_logprobs"] !== null,
    tokenIds: isAsked("return_token_ids"),
    usage: asksUsage(given["stream_options"]),
    n: toInteger(given["n"]) ?? 1,
  };
  if (asked.n > MAX_CHOICES) {
    throw new ArgumentError(
      `Expected \`n\` to be at most ${MAX_CHOICES} in a request of a session, got ${asked.n}. Send several requests`,
      { param: "n" },
    );
  }
  const fields = withSampling(given, session);
  fields["model"] = session.model;
  fields["return_token_ids"] = true;
  // Alternatives without `logprobs: true` are an error of the request.
  if (!isAsked("logprobs") && fields["top_logprobs"] === undefined) fields["logprobs"] = true;
  if (fields["top_logprobs"] === null) delete fields["top_logprobs"];
  return { fields, asked, maxTokens: tokenLimit(fields) };
}

/** Whether `stream_options` ask for token counts. */
function asksUsage(options: unknown): boolean {
  if (typeof options !== "object" || options === null) return false;
  return !("include_usage" in options) || toBoolean(options.include_usage) === true;
}

/**
 * Returns the fields with the sampling fields of the session. Members of an object such as `chat_template_kwargs` are merged one by one.
 */
function withSampling(given: Members, session: SessionFields): Record<string, unknown> {
  const fields = { ...given };
  for (const [name, value] of settings(session.defaults)) {
    const names = TOKEN_LIMIT_NAMES.includes(name) ? TOKEN_LIMIT_NAMES : [name];
    if (names.every((each) => fields[each] === undefined || fields[each] === null)) fields[name] = value;
    else if (isRecord(fields[name]) && isRecord(value)) fields[name] = { ...value, ...fields[name] };
  }
  for (const [name, value] of settings(session.overrides)) {
    if (TOKEN_LIMIT_NAMES.includes(name)) for (const each of TOKEN_LIMIT_NAMES) delete fields[each];
    fields[name] = isRecord(fields[name]) && isRecord(value) ? { ...fields[name], ...value } : value;
  }
  return fields;
}

/** Returns the fields that a session sets: a field that is null is not set. */
function settings(sampling: SessionSampling): [string, unknown][] {
  return Object.entries(sampling).filter(([, value]) => value !== null);
}

/** Returns the limit of output tokens in a request; null without one. */
function tokenLimit(fields: Members): number | null {
  const given = TOKEN_LIMIT_NAMES.map((name) => toInteger(fields[name])).find((value) => value !== undefined);
  return given === undefined ? null : Math.max(given, 1);
}

/** Limit of the output tokens in the JSON of a request: the span of its value. */
export interface TokenLimit {
  readonly value: number;
  /** Start of the value, as an index into the JSON. */
  readonly start: number;
  /** Index after the value. */
  readonly end: number;
}

/** Returns the limits of output tokens in a request. */
export function tokenLimitsIn(json: string, fields: Members): TokenLimit[] {
  return TOKEN_LIMIT_NAMES.flatMap((name) => {
    const value = toInteger(fields[name]);
    const span = value === undefined ? undefined : memberSpan(json, name);
    return value === undefined || span === undefined ? [] : [{ value, ...span }];
  });
}

/**
 * Returns the JSON of a request in which larger limits of the output tokens are lowered.
 *
 * @param limits - From {@link tokenLimitsIn}.
 * @param maxTokens - Max output tokens of each choice; null = unlimited.
 */
export function withTokenLimit(json: string, limits: readonly TokenLimit[], maxTokens: number | null): string {
  if (maxTokens === null) return json;
  return limits
    .filter(({ value }) => value > maxTokens)
    .toSorted((a, b) => b.start - a.start)
    .reduce((text, { start, end }) => text.slice(0, start) + String(maxTokens) + text.slice(end), json);
}

/** Serializes a body, with 64-bit integers exact. */
export function bodyJson(fields: Members): string {
  const entries = Object.entries(fields);
  const large = entries.filter(([, value]) => typeof value === "bigint");
  const text = JSON.stringify(large.length === 0 ? fields : Object.fromEntries(entries.filter(([, value]) => typeof value !== "bigint")));
  return large.reduce((json, [name, value]) => withMember(json, name, String(value)), text);
}
