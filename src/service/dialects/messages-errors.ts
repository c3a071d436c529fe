/** Middleware for errors in the format of the Messages API. */
import type { MiddlewareHandler } from "hono";
import { toMessagesError } from "../../dialects/messages/errors.ts";
import { errorBody } from "../../base/schema/index.ts";
import type { ServiceEnvironment } from "../http/body.ts";
import { requestIdOf } from "../http/request-id.ts";

/** Whether the path belongs to the Messages API. */
function isMessagesPath(path: string): boolean {
  return path === "/v1/messages" || path.startsWith("/v1/messages/");
}

/**
 * Middleware that converts error responses of the Messages routes from the service's format to the format of the Messages API, including
 * errors of other middleware. Responses in any other format are not changed.
 */
export const messagesErrors: MiddlewareHandler<ServiceEnvironment> = async (c, next) => {
  await next();
  const { res } = c;
  const isJson = res.headers.get("content-type")?.startsWith("application/json") === true;
  if (res.status < 400 || !isJson || !isMessagesPath(c.req.path)) return;
  const { success, data } = errorBody.safeParse(await res.clone().json());
  if (!success) return;
  // Hono copies the headers of a response that is still set into the new one.
  c.res = undefined;
  c.res = Response.json(toMessagesError(data, requestIdOf(c.env.incoming)), { status: res.status, headers: withoutLength(res.headers) });
};

/** Returns a copy of headers without the length of the body that is replaced. */
function withoutLength(headers: Headers): Headers {
  const copy = new Headers(headers);
  copy.delete("content-length");
  return copy;
}
