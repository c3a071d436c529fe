import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { MiddlewareHandler } from "hono";
import type { ServiceEnvironment, ServiceRequest } from "./body.ts";
import { errorResponse } from "./errors.ts";

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/**
 * Returns the API key of a request: of the header `Authorization: Bearer <key>`, or without that header of `x-api-key`, which clients of
 * the Messages API send. Undefined for neither header, and for an `Authorization` of another form.
 */
export function presentedKey(headers: IncomingHttpHeaders): string | undefined {
  const { authorization, "x-api-key": key } = headers;
  if (authorization !== undefined) return /^bearer +(\S+) *$/i.exec(authorization)?.[1];
  return typeof key === "string" ? key : undefined;
}

/** Requests that {@link requireKey} accepts without the API key of the service. */
export interface KeyExceptions {
  /** Returns true for paths that need no key. */
  readonly open: (path: string) => boolean;
  /**
   * Decides about a request with another key: true if it is the key of an agent's session that permits the request, the reason if the
   * session does not permit it, or null if it is the key of no session.
   */
  readonly permits: (c: ServiceRequest, key: string) => Promise<true | string | null>;
  /**
   * Decides about a request without a key: true if a session of the dashboard authorizes it, the reason if the session does not, or null
   * without such a session.
   */
  readonly dashboardSession: (c: ServiceRequest) => true | string | null;
}

/**
 * Creates a middleware that rejects requests without `Authorization: Bearer <key>` or `x-api-key: <key>` with 401. Digests are compared in
 * constant time, so that timing reveals neither the key nor its length. {@link KeyExceptions} are accepted, too; a request that the key of
 * an agent's session does not permit is answered 403.
 *
 * @param key - The API key of the service.
 */
export function requireKey(key: string, { open, permits, dashboardSession }: KeyExceptions): MiddlewareHandler<ServiceEnvironment> {
  const expected = digest(key);
  return async function requireKeyMiddleware(c, next) {
    const { headers } = c.env.incoming;
    const token = presentedKey(headers);
    const header = headers.authorization ?? token;
    if (open(c.req.path) || (token !== undefined && timingSafeEqual(digest(token), expected))) return next();
    const permitted = token === undefined ? null : await permits(c, token);
    if (permitted === true) return next();
    if (permitted !== null) return errorResponse(403, { message: permitted, code: "E_FORBIDDEN" });
    const allowed = header === undefined ? dashboardSession(c) : null;
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
