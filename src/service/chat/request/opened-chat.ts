/**
 * Requests of all dialects once they are parsed and translated (`OpenedChat`). An opened request has up to three forms, one per user: the
 * engine samples `read()`, a session records `turn`, and an upstream server receives `forwardable`.
 *
 * `openChats` opens requests: small ones on the serving thread, large ones on a work thread. From there they are sent to the serving thread
 * as plain data (`toSentChat`, `fromSentChat`), with all forms computed, so that each request is parsed, validated and serialized once.
 */
import { isGiven, type Members, type RawPrompt } from "../../../dialects/index.ts";
import { describeError, type SentError } from "../../../base/util/worker-rpc.ts";
import { UnreadableBodyError } from "../../http/errors.ts";
import { restoreTaskError } from "../../work/pool.ts";
import { withMember } from "../text/json-members.ts";
import { getOrInsert, isRecord } from "../../../base/util/values.ts";
import {
  bodyJson,
  effectiveRequest,
  tokenLimitsIn,
  type RequestedParts,
  type SessionFields,
  type TokenLimit,
} from "./effective-request.ts";
import { BodyError } from "./errors.ts";
import { FIELD_NAMES, isDefault, type FieldNeeds } from "./fields.ts";
import { readChat, type ChatRequest } from "./request.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Error classes that decide the type of a response. */
export const BODY_ERRORS = { BodyError, UnreadableBodyError };

/** Properties of the service and of a request's principal that determine how the request is read. Plain data. */
export interface ChatReadOptions {
  /** Server features that some fields need. */
  readonly needs: FieldNeeds;
  /** Session of the principal; null without one. */
  readonly session: SessionFields | null;
  /** Whether another server may sample the request. */
  readonly isForwardable: boolean;
}

/** Parsed body of a chat completion. Plain data. */
export interface ChatBody {
  readonly members: Members;
  /** Prompt of a body without `messages`. @default the rendered messages */
  readonly prompt?: RawPrompt | undefined;
  /** JSON of the members as the client sent it. @default they were translated from another dialect */
  readonly text?: string | undefined;
}

/** Additional form of a request with the key of a session: the turn that the session records. */
export interface TurnRequest {
  readonly requested: RequestedParts;
  /** Max output tokens of each choice, at least 1; null if the request does not limit them. */
  readonly maxTokens: number | null;
  /** Limits of the output tokens in `json`; empty unless the session limits its output tokens. */
  readonly limits: readonly TokenLimit[];
  /** Returns the JSON to record; has a member `prompt` if the request has a prompt instead of messages. */
  readonly json: () => string;
}

/** Additional form of a request that may be forwarded to another server. */
export interface ForwardableRequest {
  /** Value of `model`. */
  readonly model: unknown;
  /** Known fields that are neither undefined nor null, and whether each has the effect of an absent field. */
  readonly fields: ReadonlyMap<string, boolean>;
  readonly unknownFields: readonly string[];
  /** Number of choices, as far as it is valid: 1 to {@link MAX_CHOICES}. The other server rejects any other value of `n`. */
  readonly choices: number;
  /** Whether a stream is requested. */
  readonly isStream: boolean;
  /** Whether the stream is to end with its token counts. */
  readonly requestsUsage: boolean;
  /** Returns the body as JSON, with the fields of the session. */
  readonly text: () => string;
}

/** A parsed request. Its forms are computed when they are used, because most requests need only one of them. */
export interface OpenedChat {
  readonly prompt: RawPrompt | undefined;
  /** Returns the request as this service samples it. @throws the errors of `readChat` */
  readonly read: () => ChatRequest;
  /** Null without a session. */
  readonly turn: TurnRequest | null;
  /** Null unless another server may sample the request. */
  readonly forwardable: ForwardableRequest | null;
}

/** {@link OpenedChat} as plain data, to send it to another thread. JSON is in UTF-8, which is transferred instead of copied. */
export interface SentChat extends Pick<OpenedChat, "prompt"> {
  /** Result of {@link OpenedChat.read}, or its error. */
  readonly parsed: ChatRequest | SentError;
  readonly turn: (Omit<TurnRequest, "json"> & { readonly json: Uint8Array }) | null;
  readonly forwardable: (Omit<ForwardableRequest, "text"> & { readonly text: Uint8Array }) | null;
}

/**
 * Opens the chat completions of a request. Members that several bodies share (as one object) are read once.
 *
 * @throws ArgumentError `E_ARGUMENT` for too many choices in a request of a session.
 */
export function openChats(bodies: readonly ChatBody[], { needs, session, isForwardable }: ChatReadOptions): OpenedChat[] {
  /** Applies the session to members. `effective` is null without a session. */
  const applySession = (members: Members, hasMessages: boolean) => {
    const effective = session === null ? null : effectiveRequest(members, session);
    const fields = effective?.fields ?? members;
    return { effective, fields, read: once(() => readChat(fields, { needs, hasMessages })) };
  };
  const appliedByMembers = new Map<Members, ReturnType<typeof applySession>>();
  return bodies.map(({ members, prompt, text }) => {
    const { effective, fields, read } = getOrInsert(appliedByMembers, members, () => applySession(members, prompt === undefined));
    const fieldsJson = once(() => bodyJson(fields));
    let turn: TurnRequest | null = null;
    if (effective !== null) {
      const json = prompt === undefined ? fieldsJson : once(() => withMember(fieldsJson(), "prompt", JSON.stringify(prompt)));
      const limits = session?.limitsTokens === true ? tokenLimitsIn(json(), fields) : [];
      turn = { requested: effective.requested, maxTokens: effective.maxTokens, limits, json };
    }
    // Without a session, the upstream server receives the text of the client.
    const forwardedJson = effective === null && text !== undefined ? () => text : fieldsJson;
    return { prompt, read, turn, forwardable: isForwardable ? forwardableOf(fields, forwardedJson) : null };
  });
}

/** Returns a function that computes its result at the first call and then repeats it. A call that throws is not remembered. */
function once<T extends object | string>(compute: () => T): () => T {
  let result: T | undefined;
  return () => (result ??= compute());
}

/** Max choices that vLLM accepts by default. */
const MAX_CHOICES = 16_384;

/** Returns the number of choices in a request that another server validates, limited to its range; 1 for any other value. */
function choicesIn(n: unknown): number {
  const count = typeof n === "string" ? Number(n) : n;
  return typeof count === "number" && Number.isInteger(count) ? Math.min(Math.max(count, 1), MAX_CHOICES) : 1;
}

/** Returns a request as it is forwarded. `text` returns its body as JSON. */
function forwardableOf(fields: Members, text: () => string): ForwardableRequest {
  const knownFields = [...FIELD_NAMES].filter(([field]) => isGiven(fields[field]));
  return {
    model: fields["model"],
    fields: new Map(knownFields.map(([field, name]) => [field, isDefault(name, fields[field])])),
    unknownFields: Object.keys(fields).filter((field) => !FIELD_NAMES.has(field)),
    choices: choicesIn(fields["n"]),
    isStream: fields["stream"] === true,
    requestsUsage: isRecord(fields["stream_options"]) && fields["stream_options"]["include_usage"] === true,
    text,
  };
}

/** Converts a request to plain data: reads it, and keeps the error of a request that this service cannot sample. */
export function toSentChat({ prompt, read, turn, forwardable }: OpenedChat): SentChat {
  const sent = {
    prompt,
    turn: turn === null ? null : { ...turn, json: encoder.encode(turn.json()) },
    forwardable: forwardable === null ? null : { ...forwardable, text: encoder.encode(forwardable.text()) },
  };
  try {
    return { ...sent, parsed: read() };
  } catch (error) {
    return { ...sent, parsed: describeError(error) };
  }
}

/** Returns the buffers of plain data, for transfer instead of copying. */
export function chatBuffersOf({ turn, forwardable }: SentChat): ArrayBuffer[] {
  return [turn?.json, forwardable?.text].flatMap((bytes) => (bytes === undefined ? [] : [bytes.buffer as ArrayBuffer]));
}

/** Converts plain data back to a request. Its `read` throws the error that reading had on the other thread. */
export function fromSentChat({ prompt, parsed, turn, forwardable }: SentChat): OpenedChat {
  return {
    prompt,
    turn: turn === null ? null : { ...turn, json: once(() => decoder.decode(turn.json)) },
    read: () => {
      if (isSentError(parsed)) throw restoreTaskError(parsed, BODY_ERRORS);
      return parsed;
    },
    forwardable: forwardable === null ? null : { ...forwardable, text: once(() => decoder.decode(forwardable.text)) },
  };
}

/** Distinguishes an error from a request, which has no member `stack`. */
function isSentError(parsed: ChatRequest | SentError): parsed is SentError {
  return "stack" in parsed;
}
