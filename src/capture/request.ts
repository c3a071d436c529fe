/** Chat requests, recognised and made to bring what training needs. */
import { chatCompletionRequest, type ChatCompletionRequest } from "../schema/index.ts";

/** A chat request as a client is about to send it. */
export interface ChatCall {
  readonly url: URL;
  readonly model: string;
  /** The body as it was written. */
  readonly body: Readonly<Record<string, unknown>>;
}

const PATH = /\/chat\/completions\/?$/;

/** Whether a request can be a chat completion, judged without its body. */
export function isChatAddress(method: string, url: string): boolean {
  return method.toUpperCase() === "POST" && URL.canParse(url) && PATH.test(new URL(url).pathname);
}

/** The call in a body's text; null for anything else. */
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

/** The body with `logprobs` and `return_token_ids`: without them a turn could be read but not trained on. */
export function trainableBody(body: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return { ...body, logprobs: true, return_token_ids: true };
}

/** The request as a trajectory reads it; null when its messages have no known shape. */
export function parseRequest(body: Readonly<Record<string, unknown>>): ChatCompletionRequest | null {
  const result = chatCompletionRequest.safeParse(body);
  return result.success ? result.data : null;
}
