/** Translation of recorded requests and answers to chat completions. */
import { chatCompletionRequest, type ChatCompletion, type ChatCompletionRequest, type RequestMessage } from "../base/schema/index.ts";
import type { DialectName, RecordedAnswer } from "./answers.ts";
import { fromCompletion } from "./chat/recorded-answer.ts";
import { fromGenerated } from "./generate/recorded-answer.ts";
import { fromTextCompletion } from "./completions/recorded-answer.ts";
import { completionsToChats } from "./completions/request.ts";
import { generateToChat } from "./generate/request.ts";
import { accept, readMembers, type Members } from "./members.ts";
import { fromMessage } from "./messages/recorded-answer.ts";
import { messagesToChat } from "./messages/request.ts";
import { fromResponse } from "./responses/recorded-answer.ts";
import { conversationOf, type ResponseLookup } from "./responses/conversation.ts";
import { readResponsesRequest, responsesToChat } from "./responses/request.ts";
import type { RawPrompt, TranslatedCall } from "./translated-call.ts";
import { zip } from "../base/util/values.ts";

/** Request and answer of a dialect. */
export type Exchange = {
  [Name in DialectName]: { readonly dialect: Name; readonly request: Members; readonly answer: RecordedAnswer<Name> };
}[DialectName];

/** Request and answer of chat completions. */
export interface ChatExchange {
  readonly request: ChatCompletionRequest;
  readonly completion: ChatCompletion;
  /** Whether the request had a prompt instead of messages; see {@link promptMessages}. @default false */
  readonly isRaw?: boolean | undefined;
}

/** Returns the messages that stand for a prompt without messages: its text as a message of the user, which is empty for token ids. */
export function promptMessages(prompt: RawPrompt | undefined): RequestMessage[] {
  return [{ role: "user", content: prompt !== undefined && "text" in prompt ? prompt.text : "" }];
}

/**
 * Translates an exchange to chat completions: one, or one per prompt of a text completion. Unsupported content of the request is kept as
 * far as chat messages can hold it.
 *
 * @param lookup - Access to the responses that a request of the Responses API continues.
 * @throws BodyError `E_ARGUMENT` for a malformed request; UnsupportedError `E_UNSUPPORTED` for output of tools that a server runs, and
 *   for `echo`; any error of the lookup.
 */
export async function toChatExchanges(exchange: Exchange, lookup: ResponseLookup): Promise<ChatExchange[]> {
  const { dialect, request, answer } = exchange;
  switch (dialect) {
    case "chat":
      return [{ request: chatRequest({ body: request }), completion: fromCompletion(answer) }];
    case "messages":
      return [{ request: chatRequest(messagesToChat(request, accept)), completion: fromMessage(answer) }];
    case "responses": {
      const parsed = readResponsesRequest(request, accept);
      const { items } = await conversationOf(parsed, lookup);
      return [{ request: chatRequest({ body: responsesToChat(request, parsed, items, accept) }), completion: fromResponse(answer) }];
    }
    case "completions": {
      const translated = completionsToChats(request, accept);
      const completions = fromTextCompletion(answer, translated);
      return zip(translated.calls, completions).map(([call, completion]) => ({ request: chatRequest(call), completion, isRaw: true }));
    }
    case "generate": {
      const call = generateToChat(request, accept);
      return [{ request: chatRequest(call), completion: fromGenerated(answer, call), isRaw: true }];
    }
  }
}

/** Returns the chat completion request of a translated call. */
function chatRequest({ body, prompt }: TranslatedCall): ChatCompletionRequest {
  return readMembers(chatCompletionRequest, prompt === undefined ? body : { ...body, messages: promptMessages(prompt) });
}
