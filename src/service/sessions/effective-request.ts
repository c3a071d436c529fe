/** Conversion of an agent's request into the request that is sampled for its session. */
import { ArgumentError, ForbiddenError } from "../../errors.ts";
import type { SessionSampling } from "../../schema/index.ts";
import type { ChatCall } from "../chat/pipeline.ts";
import { toBoolean, toInteger } from "../chat/request/coercion.ts";
import { parseBody } from "../chat/request/request.ts";
import { withMember } from "../chat/text/json-members.ts";
import { bodyText } from "../requests.ts";
import type { SessionRow } from "../store/tables.ts";

/** Parts of the answer that the agent asked for. Session requests always have token ids and log-probabilities. */
export interface Asked {
  readonly isStream: boolean;
  readonly logprobs: boolean;
  readonly tokenIds: boolean;
  readonly usage: boolean;
  /** Number of choices. */
  readonly n: number;
}

/** Request to sample. */
export interface EffectiveRequest {
  /** Body with the fields of the session, as JSON. */
  readonly body: string;
  /** The body to record; has a member `prompt` if the request has a prompt instead of messages. */
  readonly recorded: string;
  readonly asked: Asked;
}

type Fields = Readonly<Record<string, unknown>>;

/** Max choices of a request: the log-probabilities of all are parsed and recorded at once. */
const MAX_CHOICES = 16;

/** Names of the same setting: a default of one does not apply if the request sets another, and an override replaces all. */
const SAME_SETTING = ["max_completion_tokens", "max_tokens"];

/**
 * Applies a session to a request: its model, its sampling fields, token ids and log-probabilities.
 *
 * @returns null for a body that is not a JSON object, which the pipeline rejects.
 * @throws ArgumentError `E_ARGUMENT` for a body over a size limit and more than {@link MAX_CHOICES} choices, UnreadableBodyError for a body that is not UTF-8.
 * @throws ForbiddenError `E_FORBIDDEN` if the session has no tokens left.
 */
export function effectiveRequest({ body, contentType, prompt }: ChatCall, session: SessionRow): EffectiveRequest | null {
  if (!/^\s*application\/json\b/iu.test(contentType ?? "")) return null;
  const text = bodyText("chat", body);
  let given: Fields;
  try {
    given = parseBody(text);
  } catch {
    return null;
  }
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
      {
        param: "n",
      },
    );
  }
  const fields = withSampling(given, session);
  fields["model"] = session.model;
  fields["return_token_ids"] = true;
  // Alternatives without `logprobs: true` are an error of the request.
  if (!isAsked("logprobs") && fields["top_logprobs"] === undefined) fields["logprobs"] = true;
  if (fields["top_logprobs"] === null) delete fields["top_logprobs"];
  limitTokens(fields, session, asked.n);
  const json = toJson(fields);
  return { body: json, recorded: prompt === undefined ? json : withMember(json, "prompt", JSON.stringify(prompt)), asked };
}

function asksUsage(options: unknown): boolean {
  if (typeof options !== "object" || options === null) return false;
  return !("include_usage" in options) || toBoolean(options.include_usage) === true;
}

function withSampling(given: Fields, session: SessionRow): Record<string, unknown> {
  const fields = { ...given };
  for (const [name, value] of settings(session.sampling_defaults)) {
    const names = SAME_SETTING.includes(name) ? SAME_SETTING : [name];
    if (names.every((each) => fields[each] === undefined || fields[each] === null)) fields[name] = value;
    else if (isMap(fields[name]) && isMap(value)) fields[name] = { ...value, ...fields[name] };
  }
  for (const [name, value] of settings(session.sampling_overrides)) {
    if (SAME_SETTING.includes(name)) for (const each of SAME_SETTING) delete fields[each];
    fields[name] = isMap(fields[name]) && isMap(value) ? { ...fields[name], ...value } : value;
  }
  return fields;
}

/** Whether a value is an object by name, as `chat_template_kwargs`: default, request and override are merged by key. */
function isMap(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function settings(json: string): [string, unknown][] {
  return Object.entries(JSON.parse(json) as SessionSampling).filter(([, value]) => value !== null);
}

/** Lowers the limit of output tokens to the rest of the session's tokens. */
function limitTokens(fields: Record<string, unknown>, { max_tokens: max, tokens }: SessionRow, n: number): void {
  if (max === null) return;
  const rest = Math.floor((max - tokens) / Math.max(n, 1));
  if (rest < 1) {
    throw new ForbiddenError(`The session has sampled ${tokens} of its ${max} tokens. Create another session, or raise \`max_tokens\``, {
      param: "max_tokens",
    });
  }
  for (const name of SAME_SETTING) {
    const wanted = toInteger(fields[name]);
    if (wanted !== undefined && wanted > rest) fields[name] = rest;
  }
}

/** Serializes a body, with 64-bit integers exact. */
function toJson(fields: Fields): string {
  const entries = Object.entries(fields);
  const large = entries.filter(([, value]) => typeof value === "bigint");
  const text = JSON.stringify(Object.fromEntries(entries.filter(([, value]) => typeof value !== "bigint")));
  return large.reduce((json, [name, value]) => withMember(json, name, String(value)), text);
}
