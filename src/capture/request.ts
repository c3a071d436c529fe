/** Recognition of chat requests, and the fields that training needs in them. */
import { chatCompletionRequest, type ChatCompletionRequest, type JsonObject } from "../schema/index.ts";

/** Chat request that a client is about to send. */
export interface ChatCall {
  readonly url: URL;
  readonly model: string;
  /** Body as the client wrote it, parsed. */
  readonly body: Readonly<Record<string, unknown>>;
}

const PATH = /\/chat\/completions\/?$/;

/** Whether a request can be a chat completion, judged by method and URL. */
export function isChatAddress(method: string, url: string): boolean {
  return method.toUpperCase() === "POST" && URL.canParse(url) && PATH.test(new URL(url).pathname);
}

/** Parses the call from the text of a body; null for any other body. */
export function readChatCall(url: string, text: string): ChatCall | null {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof body !== "object" || body === null || !("model" in body) || typeof body.model !== "string") return null;
  return { url: new URL(url), model: body.model, body: { ...body } };
}

/** Returns the body with `logprobs` and `return_token_ids`, which training needs, and with template variables that it does not set. */
export function trainableBody(
  body: Readonly<Record<string, unknown>>,
  chatTemplateKwargs: Readonly<JsonObject> | undefined,
): Readonly<Record<string, unknown>> {
  const { chat_template_kwargs: own } = body;
  const isMerged = chatTemplateKwargs !== undefined && typeof (own ?? {}) === "object" && !Array.isArray(own);
  return {
    ...body,
    logprobs: true,
    return_token_ids: true,
    ...(isMerged ? { chat_template_kwargs: { ...chatTemplateKwargs, ...(own as object | null | undefined) } } : {}),
  };
}

/** Returns the names in `chatTemplateKwargs` that a body does not set. */
export function missingKwargs(
  { chat_template_kwargs: own }: Readonly<Record<string, unknown>>,
  kwargs: Readonly<JsonObject> = {},
): string[] {
  return Object.keys(kwargs).filter((name) => !Object.hasOwn(Object(own), name));
}

/** Parses the request for a trajectory; null if it does not match the schema. */
export function parseRequest(body: Readonly<Record<string, unknown>>): ChatCompletionRequest | null {
  const result = chatCompletionRequest.safeParse(body);
  return result.success ? result.data : null;
}
