/** The routes of text completions and of tokens. */
import { BodyError, isGiven, readMembers, type Members, type TranslatedCall } from "../../dialects/index.ts";
import {
  completionsAnswer,
  completionsRequest,
  detokenizeAnswer,
  detokenizeRequest,
  generateAnswer,
  generateRequest,
  tokenizeAnswer,
  tokenizeRequest,
  type DetokenizeAnswer,
  type TokenizeAnswer,
} from "../../schema/index.ts";
import type { ChatPipeline } from "../chat/pipeline.ts";
import { completionsDialect } from "../dialects/completions/dialect.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { generateDialect } from "../dialects/generate.ts";
import { answerDialect, answerRendered, type RenderedRequest } from "../dialects/handler.ts";
import { route, type Route, type RouteSpec } from "../openapi/route.ts";

/** Translates the body of `POST /tokenize`. */
function openTokenize(members: Members): TranslatedCall {
  const { model, prompt, messages, add_special_tokens: addsSpecialTokens } = readMembers(tokenizeRequest, members);
  if (isGiven(prompt) === isGiven(messages))
    throw new BodyError("Expected either `prompt` or `messages`, got both or neither", { param: "prompt" });
  const { prompt: _, return_token_strs: __, ...body } = members;
  if (typeof prompt !== "string") return { body };
  return { body: isGiven(model) ? { model } : {}, prompt: { text: prompt, addsSpecialTokens: addsSpecialTokens ?? true } };
}

const TOKENIZE: RenderedRequest = {
  open: openTokenize,
  answer: ({ ids, contextLength, tokenizer }, { return_token_strs: hasTexts }): TokenizeAnswer => {
    const tokens = [...ids];
    const texts = hasTexts === true ? tokens.map((id) => tokenizer.tokenText(id)) : null;
    return { count: tokens.length, max_model_len: contextLength, tokens, token_strs: texts };
  },
};

const DETOKENIZE: RenderedRequest = {
  open: (members) => {
    const { model, tokens } = readMembers(detokenizeRequest, members);
    return { body: isGiven(model) ? { model } : {}, prompt: { ids: tokens } };
  },
  answer: ({ ids, tokenizer }): DetokenizeAnswer => ({ prompt: tokenizer.decode([...ids]) }),
};

const SHARED = {
  method: "POST",
  tag: "Chat",
  isExtension: true,
  isForSessions: true,
  errors: [403, 404, 409, 429],
  validationStatus: 400,
} as const;

/** Creates `POST /v1/completions`, `/inference/v1/generate`, `/tokenize` and `/detokenize`. */
export function completionRoutes(chat: ChatPipeline): Route[] {
  const sampled = (dialect: Dialect, spec: Omit<RouteSpec, keyof typeof SHARED>): Route =>
    route({ ...SHARED, ...spec }, (context) => answerDialect(chat, dialect, context));
  const rendered = (request: RenderedRequest, spec: Omit<RouteSpec, keyof typeof SHARED>): Route =>
    route({ ...SHARED, ...spec }, (context) => answerRendered(chat, context, request));
  return [
    sampled(completionsDialect, {
      path: "/v1/completions",
      id: "createCompletion",
      summary: "Continue texts or token ids, without a chat template",
      description: "With `stream: true` the answer is a stream of server-sent events; the last one is `[DONE]`.",
      body: completionsRequest,
      answer: {
        description: "A completion, or a stream of its chunks.",
        content: { "application/json": completionsAnswer, "text/event-stream": "text" },
      },
    }),
    sampled(generateDialect, {
      path: "/inference/v1/generate",
      id: "generate",
      summary: "Continue token ids with token ids",
      body: generateRequest,
      answer: generateAnswer,
    }),
    rendered(TOKENIZE, {
      path: "/tokenize",
      id: "tokenize",
      summary: "Encode a text, or the prompt of a conversation",
      body: tokenizeRequest,
      answer: tokenizeAnswer,
    }),
    rendered(DETOKENIZE, {
      path: "/detokenize",
      id: "detokenize",
      summary: "Decode token ids",
      body: detokenizeRequest,
      answer: detokenizeAnswer,
    }),
  ];
}
