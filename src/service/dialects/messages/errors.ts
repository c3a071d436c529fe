/** Errors in the format of the Messages API. */
import type { MiddlewareHandler } from "hono";
import { errorBody, type ErrorBody, type MessagesError } from "../../../schema/index.ts";
import type { ServiceEnvironment } from "../../body.ts";

/** Error types by HTTP status; other statuses below 500 are `invalid_request_error`, above `api_error`. */
const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
};

/** Details by which the tool runner of Anthropic's client recognizes that it has to send whole conversations. */
const NO_THREADS = { error_code: "thread_unsupported_request", unsupported: ["thread"] };

/** Converts an error body of the service. */
export function toMessagesError({ error }: ErrorBody): MessagesError {
  const { message, param, code, error_code } = error;
  const type = TYPES[code] ?? (code >= 500 ? "api_error" : "invalid_request_error");
  const details = param === "thread" && error_code === "E_UNSUPPORTED" ? { details: NO_THREADS } : {};
  return { type: "error", error: { type, message, param, code, error_code, ...details } };
}

/** Whether the path belongs to the Messages API. */
function isMessagesPath(path: string): boolean {
  return path === "/v1/messages" || path.startsWith("/v1/messages/");
}

/** Middleware that converts every error response of the Messages routes, also if another middleware created it. */
export const messagesErrors: MiddlewareHandler<ServiceEnvironment> = async (c, next) => {
  await next();
  const { res } = c;
  const isJson = res.headers.get("content-type")?.startsWith("application/json") === true;
  if (res.status < 400 || !isJson || !isMessagesPath(c.req.path)) return;
  const { success, data } = errorBody.safeParse(await res.clone().json());
  if (!success) return;
  c.res = undefined;
  c.res = Response.json(toMessagesError(data), { status: res.status, headers: withoutLength(res.headers) });
};

function withoutLength(headers: Headers): Headers {
  const kept = new Headers(headers);
  kept.delete("content-length");
  return kept;
}
