/**
 * Translation of request bodies to chat completions, for all dialects and requests about tokens. `openBody`, at the end, parses a body, runs
 * its translation, and opens the chat completions. A large body takes many milliseconds, so that `Translator` runs `openBody` on a work
 * thread: all results are plain data.
 */
import {
  completionsToChats,
  conversationOf,
  generateToChat,
  messagesToChat,
  readResponsesRequest,
  responsesToChat,
  type Members,
  type TranslatedCall,
  type TranslatedCompletion,
} from "../../dialects/index.ts";
import { InternalError } from "../../base/errors.ts";
import { getOrInsert } from "../../base/util/values.ts";
import type { ResponsesItem, ResponsesRequest } from "../../base/schema/index.ts";
import { parseBody } from "../chat/request/request.ts";
import { bodyText } from "../http/requests.ts";
import { chatBody } from "./chat-members.ts";
import { openChats, type ChatBody, type OpenedChat, type ChatReadOptions } from "../chat/request/opened-chat.ts";
import type { Translation } from "./dialect.ts";
import { rejectMessageFields } from "./message-fields.ts";
import { translateDetokenize, translateTokenize } from "./tokens.ts";

/** A translated request of the Messages API. */
export interface TranslatedMessage extends Translation {
  readonly isStream: boolean;
  /** Whether thinking blocks of the answer have no text. */
  readonly omitsThinking: boolean;
}

function translateMessages(members: Members): TranslatedMessage {
  const { body, isStream, omitsThinking } = messagesToChat(members);
  return { bodies: [chatBody(body, { isStream })], isStream, omitsThinking };
}

function translateCount(members: Members): Translation {
  return { bodies: [chatBody(messagesToChat(members).body, { isStream: false })] };
}

/** A translated text completion. Its bodies have the prompts; the prompt of `request` is empty. */
export type TranslatedTexts = Translation & Omit<TranslatedCompletion, "calls">;

function translateCompletions(members: Members): TranslatedTexts {
  rejectMessageFields(members);
  const { request, omitsSample, calls } = completionsToChats(members);
  return {
    request: { ...request, prompt: "" },
    omitsSample,
    bodies: bodiesOf(calls, request.stream === true),
  };
}

/** Returns the bodies of calls. The calls of one request share their members as one object, which `openChats` then reads once. */
function bodiesOf(calls: readonly TranslatedCall[], isStream: boolean): ChatBody[] {
  const bodyByMembers = new Map<Members, ChatBody>();
  return calls.map(({ body: members, prompt }) => {
    const shared = getOrInsert(bodyByMembers, members, () => chatBody(members, { isStream }));
    return { ...shared, prompt };
  });
}

function translateGenerate(members: Members): Translation {
  const { body, prompt } = generateToChat(members);
  rejectMessageFields((members["sampling_params"] ?? {}) as Members);
  return { bodies: [chatBody(body, { isStream: false, prompt })] };
}

/**
 * A translated request of the Responses API. A request that refers to stored responses has no bodies yet: `responsesDialect` adds them on the
 * serving thread, which has access to the store.
 */
export interface TranslatedResponse extends Translation {
  /** The body. Its `input` is empty, unless the request refers to stored responses. */
  readonly request: ResponsesRequest;
  /** Items of the input as JSON; null if the request refers to stored responses. */
  readonly input: string | null;
}

/** Returns the chat completion of a request with its conversation. */
export function responsesCall(request: ResponsesRequest, items: readonly ResponsesItem[]): ChatBody {
  return chatBody(responsesToChat(request, request, items), { isStream: request.stream === true });
}

/** Lookup for a request that refers to no stored response; it is never called. */
function unstored(): never {
  throw new InternalError("A request without references to stored responses needs one");
}

async function translateResponses(members: Members): Promise<TranslatedResponse> {
  const request = readResponsesRequest(members);
  const hasReferences = typeof request.input !== "string" && request.input.some(({ type }) => type === "item_reference");
  const isContinuation = (request.previous_response_id ?? null) !== null;
  if (hasReferences || isContinuation) return { request, input: null, bodies: [] };
  const { input, items } = await conversationOf(request, { response: unstored, item: unstored });
  return { request: { ...request, input: [] }, input: JSON.stringify(input), bodies: [responsesCall(request, items)] };
}

/** Returns a chat completion as its own translation. */
function translateChat(members: Members): Translation {
  return { bodies: [{ members }] };
}

/** Translations by name: of dialects that sample (`chat` to `generate`), and of requests about tokens, which only render a prompt. */
const TRANSLATIONS = {
  chat: translateChat,
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

/** A translation with open chat completions. */
export type Opened<T extends Translation> = Omit<T, "bodies"> & { readonly calls: readonly OpenedChat[] };

/**
 * Parses, translates and opens a request.
 *
 * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` naming an unsupported field or value; other errors
 *   of `bodyText` and `openChats`.
 */
export async function openBody<N extends TranslationName>(
  name: N,
  bytes: Uint8Array,
  options: ChatReadOptions,
): Promise<Opened<Translated<N>>> {
  const text = bodyText("chat", bytes);
  const { bodies, ...translated } = (await TRANSLATIONS[name](parseBody(text))) as Translated<N>;
  // The text of a chat completion is forwarded as the client wrote it.
  const chatBodies = name === "chat" ? bodies.map((body) => ({ ...body, text })) : bodies;
  return { ...translated, calls: openChats(chatBodies, options) } as Opened<Translated<N>>;
}
