import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { MiddlewareHandler } from "hono";
import type { ServiceEnvironment, ServiceRequest } from "./body.ts";
import { errorResponse } from "./errors.ts";

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/**
 * Returns the API key of a request: of the header `Authorization: Bearer <key>`, or without that header of `x-api-key`, which clients of the
 * Messages API send. Undefined for neither header, and for an `Authorization` of another form.
 */
export function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const { authorization, "x-api-key": key } = headers;
  if (authorization !== undefined) return /^bearer +(\S+) *$/i.exec(authorization)?.[1];
  return typeof key === "string" ? key : undefined;
}

/** Requests that {@link requireKey} accepts without the API key. */
export interface KeyExceptions {
  readonly open: (path: string) => boolean;
  readonly permits: (c: ServiceRequest, key: string) => Promise<true | string | null>;
  readonly session: (c: ServiceRequest) => true | string | null;
}

/**
 * Creates a middleware that rejects requests without `Authorization: Bearer <key>` or `x-api-key: <key>` with 401. Digests are compared in
 * constant time, so that timing reveals neither the key nor its length. A session of the dashboard replaces the key where `session` allows
 * it, and the key of an agent's session where `permits` does; with such a key, other requests are answered 403.
 *
 * @param key - The API key of the service.
 * @param open - Returns true for paths that need no key.
 * @param permits - Returns true if the key is one of an agent's session that permits the request, the reason if it does not, or null for
 *   any other key.
 * @param session - Returns true if a session of the dashboard authorizes the request, the reason if it does not, or null without a session.
 */
export function requireKey(key: string, { open, permits, session }: KeyExceptions): MiddlewareHandler<ServiceEnvironment> {
  const expected = digest(key);
  return async function requireKeyMiddleware(c, next) {
    const { headers } = c.env.incoming;
    const token = presentedKey(headers);
    const header = headers.authorization ?? token;
    if (open(c.req.path) || (token !== undefined && timingSafeEqual(digest(token), expected))) return next();
    const permitted = token === undefined ? null : await permits(c, token);
    if (permitted === true) return next();
    if (permitted !== null) return errorResponse(403, { message: permitted, code: "E_FORBIDDEN" });
    const allowed = header === undefined ? session(c) : null;
    if (allowed === true) return next();
    const message =
      allowed !== null
        ? allowed
        : header === undefined
          ? "Expected the header 'Authorization: Bearer <key>', got none. The key is WHETSTONE_API_KEY, or the file api-key in the service's data directory"
          : token === undefined
            ? "Expected the header 'Authorization' to be 'Bearer <key>'"
            : "The API key is not the one of this service";
    return errorResponse(401, { message, code: "E_UNAUTHORIZED", headers: { "WWW-Authenticate": "Bearer" } });
  };
}
