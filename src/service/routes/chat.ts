/** `POST /v1/chat/completions`. */
import { Hono, type Context } from "hono";
import { RETRY_AFTER_SECONDS } from "../chat/errors.ts";
import { ChatService, type ChatDependencies } from "../chat/service.ts";

export type { ChatLimits } from "../chat/admit.ts";
export type { ChatDependencies } from "../chat/service.ts";

const JSON_HEADERS = { "content-type": "application/json" };
const STREAM_HEADERS = { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no" };

/** The key alone: however a header spells it, it is one key with one memory. */
function credentialOf(authorization: string | undefined): string {
  return authorization === undefined ? "" : (/^bearer +(\S+) *$/i.exec(authorization)?.[1] ?? authorization);
}

async function handle(chat: ChatService, context: Context): Promise<Response> {
  const { req } = context;
  try {
    const answer = await chat.complete({
      body: await req.text(),
      contentType: req.header("content-type"),
      requestId: req.header("x-request-id"),
      credential: credentialOf(req.header("authorization")),
      signal: req.raw.signal,
    });
    return answer.kind === "json"
      ? new Response(answer.body, { headers: JSON_HEADERS })
      : new Response(answer.events, { headers: STREAM_HEADERS });
  } catch (error) {
    const { status, body } = chat.explain(error);
    const retry: Record<string, string> = status === 429 || status === 503 ? { "retry-after": String(RETRY_AFTER_SECONDS) } : {};
    return new Response(JSON.stringify(body), { status, headers: { ...JSON_HEADERS, ...retry } });
  }
}

/**
 * The chat completion route, with and without a trailing slash. Authentication and the limit on bodies are the surrounding app's.
 *
 * @example
 * ```ts
 * app.route("/", chatRoutes({ policies, engine, tokenizers }));
 * ```
 */
export function chatRoutes(dependencies: ChatDependencies): Hono {
  const chat = new ChatService(dependencies);
  const app = new Hono();
  for (const path of ["/v1/chat/completions", "/v1/chat/completions/"]) app.post(path, (context) => handle(chat, context));
  return app;
}
