/**
 * Conversion of an agent's request into the request that is sampled for its session (`effectiveRequest`): with the model and the sampling
 * fields of the session, and with token ids and log-probabilities, which the session records.
 *
 * A session with a limit of output tokens lowers the limits of its requests just before sampling, in their JSON text (`tokenLimitsIn`,
 * `withTokenLimit`).
 */
import { without, type Members } from "../../../dialects/index.ts";
import { ArgumentError } from "../../../base/errors.ts";
import type { SessionSampling } from "../../../base/schema/index.ts";
import { memberSpan, withMember } from "../text/json-members.ts";
import { toBoolean, toInteger } from "./coercion.ts";
import { isRecord } from "../../../base/util/values.ts";

/** Parts of the answer that the agent requested. The effective request always has token ids and log-probabilities. */
export interface RequestedParts {
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
  readonly requested: RequestedParts;
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
export function effectiveRequest(members: Members, session: SessionFields): EffectiveRequest {
  const isTrue = (name: string): boolean => toBoolean(members[name]) === true;
  const requested: RequestedParts = {
    isStream: isTrue("stream"),
    logprobs: isTrue("logprobs") && members["top_logprobs"] !== null,
    tokenIds: isTrue("return_token_ids"),
    usage: requestsUsage(members["stream_options"]),
    n: toInteger(members["n"]) ?? 1,
  };
  if (requested.n > MAX_CHOICES) {
    throw new ArgumentError(
      `Expected \`n\` to be at most ${MAX_CHOICES} in a request of a session, got ${requested.n}. Send several requests`,
      { param: "n" },
    );
  }
  const fields = withSampling(members, session);
  fields["model"] = session.model;
  fields["return_token_ids"] = true;
  // `top_logprobs` without `logprobs: true` is an error that the validation of the request must still find.
  if (!isTrue("logprobs") && fields["top_logprobs"] === undefined) fields["logprobs"] = true;
  if (fields["top_logprobs"] === null) delete fields["top_logprobs"];
  return { fields, requested, maxTokens: tokenLimit(fields) };
}

/** Whether `stream_options` request token counts. */
function requestsUsage(options: unknown): boolean {
  if (typeof options !== "object" || options === null) return false;
  return !("include_usage" in options) || toBoolean(options.include_usage) === true;
}

/**
 * Returns the fields with the sampling fields of the session. Members of an object such as `chat_template_kwargs` are merged one by one.
 */
function withSampling(members: Members, session: SessionFields): Record<string, unknown> {
  const fields = { ...members };
  for (const [name, value] of setEntries(session.defaults)) {
    const names = TOKEN_LIMIT_NAMES.includes(name) ? TOKEN_LIMIT_NAMES : [name];
    const isMissing = names.every((each) => fields[each] === undefined || fields[each] === null);
    if (isMissing) fields[name] = value;
    else if (isRecord(fields[name]) && isRecord(value)) fields[name] = { ...value, ...fields[name] };
  }
  for (const [name, value] of setEntries(session.overrides)) {
    if (TOKEN_LIMIT_NAMES.includes(name)) for (const each of TOKEN_LIMIT_NAMES) delete fields[each];
    fields[name] = isRecord(fields[name]) && isRecord(value) ? { ...fields[name], ...value } : value;
  }
  return fields;
}

/** Returns the fields that a session sets: a field that is null is not set. */
function setEntries(sampling: SessionSampling): [string, unknown][] {
  return Object.entries(sampling).filter(([, value]) => value !== null);
}

/** Returns the limit of output tokens in a request, at least 1; null without a limit. */
function tokenLimit(fields: Members): number | null {
  const limit = TOKEN_LIMIT_NAMES.map((name) => toInteger(fields[name])).find((value) => value !== undefined);
  return limit === undefined ? null : Math.max(limit, 1);
}

/** Limit of output tokens in the JSON of a request, with the span of its value in the text. */
export interface TokenLimit {
  readonly value: number;
  /** Start of the value, as an index into the JSON. */
  readonly start: number;
  /** Index after the value. */
  readonly end: number;
}

/** Returns the limits of output tokens in a request, one per name that the request has. `json` is the text of `fields`. */
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
  const largerLimits = limits.filter(({ value }) => value > maxTokens);
  let lowered = json;
  // From the end of the text, so that the spans before remain valid.
  for (const { start, end } of largerLimits.toSorted((a, b) => b.start - a.start))
    lowered = lowered.slice(0, start) + String(maxTokens) + lowered.slice(end);
  return lowered;
}

/** Serializes a body. A bigint is written as a number with all its digits. */
export function bodyJson(fields: Members): string {
  const bigints = Object.entries(fields).filter(([, value]) => typeof value === "bigint");
  if (bigints.length === 0) return JSON.stringify(fields);
  let json = JSON.stringify(without(fields, new Set(bigints.map(([name]) => name))));
  for (const [name, value] of bigints) json = withMember(json, name, String(value));
  return json;
}
