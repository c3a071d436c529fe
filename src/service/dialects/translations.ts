/** Translation of request bodies. A large body takes many milliseconds, so it is translated on a work thread. */
import {
  completionsToChats,
  conversationOf,
  generateToChat,
  messagesToChat,
  readResponsesRequest,
  responsesToChat,
  type Members,
  type TranslatedCompletion,
} from "../../dialects/index.ts";
import { InternalError } from "../../errors.ts";
import type { ResponsesItem, ResponsesRequest } from "../../schema/index.ts";
import { parseBody } from "../chat/request/request.ts";
import { bodyText } from "../requests.ts";
import { chatBytes } from "./chat-bytes.ts";
import type { DialectCall, Translation } from "./dialect.ts";
import { rejectMessageFields } from "./message-fields.ts";
import { translateDetokenize, translateTokenize } from "./tokens.ts";

/** A translated request of the Messages API. */
export interface TranslatedMessage extends Translation {
  readonly isStream: boolean;
}

function translateMessages(members: Members): TranslatedMessage {
  const { body, isStream } = messagesToChat(members);
  return { calls: [{ body: chatBytes(body, isStream) }], isStream };
}

function translateCount(members: Members): Translation {
  return { calls: [{ body: chatBytes(messagesToChat(members).body, false) }] };
}

/** A translated text completion. The prompt is in the calls, and not in the request. */
export type TranslatedTexts = Translation & Omit<TranslatedCompletion, "calls">;

function translateCompletions(members: Members): TranslatedTexts {
  rejectMessageFields(members);
  const { request, isEchoAlone, calls } = completionsToChats(members);
  const isStream = request.stream === true;
  return {
    request: { ...request, prompt: "" },
    isEchoAlone,
    calls: calls.map(({ body, prompt }) => ({ body: chatBytes(body, isStream), prompt })),
  };
}

function translateGenerate(members: Members): Translation {
  const { body, prompt } = generateToChat(members);
  rejectMessageFields((members["sampling_params"] ?? {}) as Members);
  return { calls: [{ body: chatBytes(body, false), prompt }] };
}

/** A translated request of the Responses API. */
export interface TranslatedResponse extends Translation {
  /** The body; without its input, unless that needs stored responses. */
  readonly request: ResponsesRequest;
  /** Items of the input as JSON; null if the request needs stored responses, and has no calls yet. */
  readonly input: string | null;
}

/** Returns the chat completion of a request with its conversation. */
export function responsesCall(request: ResponsesRequest, items: readonly ResponsesItem[]): DialectCall {
  return { body: chatBytes(responsesToChat(request, request, items), request.stream === true) };
}

function unstored(): never {
  throw new InternalError("A request without references to stored responses needs one");
}

async function translateResponses(members: Members): Promise<TranslatedResponse> {
  const request = readResponsesRequest(members);
  const { input: given, previous_response_id: previousId } = request;
  const hasReferences = typeof given !== "string" && given.some(({ type }) => type === "item_reference");
  if (hasReferences || (previousId ?? null) !== null) return { request, input: null, calls: [] };
  const { input, items } = await conversationOf(request, { response: unstored, item: unstored });
  return { request: { ...request, input: [] }, input: JSON.stringify(input), calls: [responsesCall(request, items)] };
}

/** Translations by name: of a dialect, or of a request about tokens. */
const TRANSLATIONS = {
  messages: translateMessages,
  responses: translateResponses,
  completions: translateCompletions,
  generate: translateGenerate,
  count: translateCount,
  tokenize: translateTokenize,
  detokenize: translateDetokenize,
} as const satisfies Readonly<Record<string, (members: Members) => Translation | Promise<Translation>>>;

/** Name of a translation. */
export type TranslationName = keyof typeof TRANSLATIONS;

/** Result of a translation. */
export type Translated<N extends TranslationName> = Awaited<ReturnType<(typeof TRANSLATIONS)[N]>>;

/**
 * Parses and translates a request body.
 *
 * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` naming an unsupported field or value; other errors
 *   of `bodyText`.
 */
export async function translateBody<N extends TranslationName>(name: N, bytes: Uint8Array): Promise<Translated<N>> {
  return (await TRANSLATIONS[name](parseBody(bodyText("chat", bytes)))) as Translated<N>;
}
