/** The routes of text completions and of tokens. */
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
} from "../../base/schema/index.ts";
import { completionsDialect } from "../dialects/completions.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { generateDialect } from "../dialects/generate.ts";
import { answerDialect, answerRendered, type DialectContext, type RenderedRequest, type SampledName } from "../dialects/handler.ts";
import type { Opened, Translated, TranslationName } from "../dialects/translations.ts";
import { route, type Route, type RouteSpec } from "../openapi/route.ts";

const TOKENIZE: RenderedRequest<"tokenize"> = {
  name: "tokenize",
  answer: ({ ids, contextLength, tokenizer }, { hasTexts }): TokenizeAnswer => {
    const tokens = [...ids];
    const texts = hasTexts ? tokens.map((id) => tokenizer.tokenText(id)) : null;
    return { count: tokens.length, max_model_len: contextLength, tokens, token_strs: texts };
  },
};

const DETOKENIZE: RenderedRequest<"detokenize"> = {
  name: "detokenize",
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
export function completionRoutes(context: DialectContext): Route[] {
  type Spec = Omit<RouteSpec, keyof typeof SHARED>;
  const sampled = <N extends SampledName>(dialect: Dialect<Opened<Translated<N>>, N>, spec: Spec): Route =>
    route({ ...SHARED, ...spec }, (c) => answerDialect(context, dialect, c));
  const rendered = <N extends TranslationName>(request: RenderedRequest<N>, spec: Spec): Route =>
    route({ ...SHARED, ...spec }, (c) => answerRendered(context, request, c));
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
