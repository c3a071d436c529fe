/** The routes that sample and tokenize: chat completions, the Messages API, text completions and token ids. */
import type { z } from "zod";
import {
  chatCompletion,
  completionsAnswer,
  completionsRequest,
  detokenizeAnswer,
  detokenizeRequest,
  generateAnswer,
  generateRequest,
  messagesAnswer,
  messagesError,
  messagesRequest,
  messagesTokenCount,
  tokenizeAnswer,
  tokenizeRequest,
  type DetokenizeAnswer,
  type TokenizeAnswer,
} from "../../base/schema/index.ts";
import { wireRequest } from "../chat/request/fields.ts";
import { chatDialect } from "../dialects/chat.ts";
import { completionsDialect } from "../dialects/completions.ts";
import { generateDialect } from "../dialects/generate.ts";
import { answerDialect, answerRendered, type DialectContext } from "../dialects/handler.ts";
import { messagesDialect } from "../dialects/messages.ts";
import type { Route, RouteAnswer, RouteSpec } from "../openapi/route.ts";

/** Members of every route that samples or renders. */
export const CHAT_ROUTE = {
  method: "POST",
  tag: "Chat",
  access: ["sample"],
  errors: [403, 404, 409, 429],
  validationStatus: 400,
  isForSessions: true,
} as const;

/** Returns the answer of a route that samples: JSON of a schema, or a stream of server-sent events. */
export function streamable(schema: z.ZodType, description: string): RouteAnswer {
  return { description, content: { "application/json": schema, "text/event-stream": "text" } };
}

const COMPLETION_CHUNKS = "A completion, or a stream of its chunks.";

const CHAT: RouteSpec = {
  ...CHAT_ROUTE,
  path: "/v1/chat/completions",
  id: "createChatCompletion",
  summary: "Generate the next message of a conversation",
  description:
    "With `stream: true` the answer is a stream of server-sent events: each has a chunk of the completion as its data, or an error body, and the last one `[DONE]`.",
  body: wireRequest,
  answer: streamable(chatCompletion, COMPLETION_CHUNKS),
};

/**
 * Creates `POST /v1/chat/completions`, with and without a trailing slash, `/v1/messages`, `/v1/messages/count_tokens`, `/v1/completions`,
 * `/inference/v1/generate`, `/tokenize` and `/detokenize`. The surrounding app handles authentication and body limits.
 */
export function chatRoutes(context: DialectContext): Route[] {
  const answerChat: Route["handle"] = (c) => answerDialect(context, chatDialect, c);
  const extension = { ...CHAT_ROUTE, isExtension: true } as const;
  const messages = { ...extension, body: messagesRequest, errorBody: messagesError };
  return [
    { ...CHAT, handle: answerChat },
    {
      ...CHAT,
      path: `${CHAT.path}/`,
      id: "createChatCompletionWithSlash",
      summary: "The same with a slash at the end",
      handle: answerChat,
    },
    {
      ...messages,
      path: "/v1/messages",
      id: "createMessage",
      summary: "Generate the next message of a conversation, in the format of the Messages API",
      description: "With `stream: true` the answer is a stream of server-sent events from `message_start` to `message_stop`.",
      answer: streamable(messagesAnswer, "A message, or a stream of its events."),
      handle: (c) => answerDialect(context, messagesDialect, c),
    },
    {
      ...messages,
      path: "/v1/messages/count_tokens",
      id: "countMessageTokens",
      summary: "Count the tokens of the prompt of a message",
      answer: messagesTokenCount,
      handle: (c) => answerRendered(context, { name: "count", answer: ({ ids }) => ({ input_tokens: ids.length }) }, c),
    },
    {
      ...extension,
      path: "/v1/completions",
      id: "createCompletion",
      summary: "Continue texts or token ids, without a chat template",
      description: "With `stream: true` the answer is a stream of server-sent events; the last one is `[DONE]`.",
      body: completionsRequest,
      answer: streamable(completionsAnswer, COMPLETION_CHUNKS),
      handle: (c) => answerDialect(context, completionsDialect, c),
    },
    {
      ...extension,
      path: "/inference/v1/generate",
      id: "generate",
      summary: "Continue token ids with token ids",
      body: generateRequest,
      answer: generateAnswer,
      handle: (c) => answerDialect(context, generateDialect, c),
    },
    {
      ...extension,
      path: "/tokenize",
      id: "tokenize",
      summary: "Encode a text, or the prompt of a conversation",
      body: tokenizeRequest,
      answer: tokenizeAnswer,
      handle(c) {
        return answerRendered(
          context,
          {
            name: "tokenize",
            answer({ ids, contextLength, tokenizer }, { hasTexts }): TokenizeAnswer {
              const tokens = [...ids];
              const texts = hasTexts ? tokens.map((id) => tokenizer.tokenText(id)) : null;
              return { count: tokens.length, max_model_len: contextLength, tokens, token_strs: texts };
            },
          },
          c,
        );
      },
    },
    {
      ...extension,
      path: "/detokenize",
      id: "detokenize",
      summary: "Decode token ids",
      body: detokenizeRequest,
      answer: detokenizeAnswer,
      handle: (c) =>
        answerRendered(
          context,
          { name: "detokenize", answer: ({ ids, tokenizer }): DetokenizeAnswer => ({ prompt: tokenizer.decode([...ids]) }) },
          c,
        ),
    },
  ];
}
