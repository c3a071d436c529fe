/** Recognition of chat requests, and the fields that training needs in them. */
import { chatCompletionRequest, type ChatCompletionRequest } from "../schema/index.ts";

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

/** Returns the body with `logprobs` and `return_token_ids`, which training needs. */
export function trainableBody(body: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return { ...body, logprobs: true, return_token_ids: true };
}

/** Parses the request for a trajectory; null if it does not match the schema. */
export function parseRequest(body: Readonly<Record<string, unknown>>): ChatCompletionRequest | null {
  const result = chatCompletionRequest.safeParse(body);
  return result.success ? result.data : null;
}
