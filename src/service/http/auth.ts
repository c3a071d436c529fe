import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { MiddlewareHandler } from "hono";
import type { ServiceEnvironment, ServiceRequest } from "./body.ts";
import { errorResponse } from "./errors.ts";
import { rateLimitHeaders } from "../quotas/headers.ts";
import type { Quotas } from "../quotas/quotas.ts";
import type { Principal } from "./principal.ts";

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

/** Result of checking a credential: the principal, or the status and the reason of a rejection. */
export type Authentication = Principal | { readonly status: 401 | 403; readonly reason: string };

/** Credentials that {@link requireKey} accepts. */
export interface Credentials {
  /** The API key of the service. */
  readonly apiKey: string;
  /** Principal of the API key of the service. */
  readonly service: Principal;
  /** Returns true for paths that need no key. */
  readonly open: (path: string) => boolean;
  /** Kinds of other keys, asked in order. Each returns null for a key that is not of its kind. */
  readonly keys: readonly ((c: ServiceRequest, key: string) => Promise<Authentication | null>)[];
  /**
   * Decides about a request without a key: true if a session of the dashboard authorizes it as the service's own key, the reason if the
   * session does not, or null without such a session.
   */
  readonly dashboardSession: (c: ServiceRequest) => true | string | null;
  /** Returns the accounts of a principal with limits. */
  readonly chargedFor: Quotas["chargedFor"];
}

/**
 * Creates a middleware that authenticates requests by `Authorization: Bearer <key>` or `x-api-key: <key>` and sets the principal of the
 * request. Others are answered 401; a request that its session key does not permit, 403. Digests are compared in constant time, so that
 * timing reveals neither the key of the service nor its length.
 */
export function requireKey(credentials: Credentials): MiddlewareHandler<ServiceEnvironment> {
  const { apiKey, service, open, keys, dashboardSession, chargedFor } = credentials;
  const expected = digest(apiKey);
  const authenticate = async (c: ServiceRequest): Promise<Authentication> => {
    const { headers } = c.env.incoming;
    const token = presentedKey(headers);
    if (token === undefined) {
      const allowed = headers.authorization === undefined ? dashboardSession(c) : null;
      if (allowed === true) return service;
      const reason =
        allowed ??
        (headers.authorization === undefined
          ? "Expected the header 'Authorization: Bearer <key>', got none. The key is WHETSTONE_API_KEY, or the file api-key in the service's data directory"
          : "Expected the header 'Authorization' to be 'Bearer <key>'");
      return { status: 401, reason };
    }
    if (timingSafeEqual(digest(token), expected)) return service;
    for (const find of keys) {
      const found = await find(c, token);
      if (found !== null) return found;
    }
    return { status: 401, reason: "The API key is not the one of this service" };
  };
  return async function requireKeyMiddleware(c, next) {
    if (open(c.req.path)) {
      // Public routes may show more to the holder of the service's own key.
      const token = presentedKey(c.env.incoming.headers);
      if (token !== undefined && timingSafeEqual(digest(token), expected)) c.set("principal", service);
      return next();
    }
    const result = await authenticate(c);
    if (!("status" in result)) {
      c.set("principal", result);
      const { id: key, visibility, limits } = result;
      if (limits === null) return next();
      const charged = await chargedFor({ key, entity: visibility.entity, limits });
      c.set("charged", charged);
      await next();
      for (const [name, value] of Object.entries(rateLimitHeaders(charged.accounts))) c.header(name, value);
      return;
    }
    const { status, reason: message } = result;
    if (status === 403) return errorResponse(403, { message, code: "E_FORBIDDEN" });
    return errorResponse(401, { message, code: "E_UNAUTHORIZED", headers: { "WWW-Authenticate": "Bearer" } });
  };
}
