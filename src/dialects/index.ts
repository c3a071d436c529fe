/** Translation of API dialects to chat completions, for the service and for readers of recorded requests. */
export { ANSWERS, type DialectName, type RecordedAnswer } from "./answers.ts";
export { completionsToChats, type TranslatedCompletion } from "./completions/request.ts";
export { promptMessages, toChatExchanges, type ChatExchange, type Exchange } from "./exchange.ts";
export { generateToChat } from "./generate/request.ts";
export { accept, BodyError, given, isGiven, readMembers, unsupportedMember, without, type Members } from "./members.ts";
export { messagesToChat } from "./messages/request.ts";
export { continued, conversationOf, type ResponseLookup } from "./responses/conversation.ts";
export { readResponsesRequest, responsesToChat } from "./responses/request.ts";
export type { RawPrompt, TranslatedCall } from "./translated-call.ts";
