/** Authentication of requests: finds the principal of a credential, or rejects the request. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { MiddlewareHandler } from "hono";
import type { ServiceEnvironment, ServiceRequest } from "./body.ts";
import { errorResponse } from "./errors.ts";
import { rateLimitHeaders } from "../quotas/headers.ts";
import type { Quotas } from "../quotas/quotas.ts";
import type { Principal } from "./principal.ts";

/** Returns the SHA-256 of a text. */
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

/** Status and reason of a rejected request. */
interface Rejection {
  readonly status: 401 | 403;
  readonly reason: string;
}

/** Result of checking a credential: the principal, or a rejection. */
export type Authentication = Principal | Rejection;

/** Credentials that {@link requireKey} accepts. */
export interface Credentials {
  /** The API key of the service. */
  readonly apiKey: string;
  /** Principal of the API key of the service. */
  readonly service: Principal;
  /** Returns true for paths that need no key. */
  readonly open: (path: string) => boolean;
  /** Checks of other kinds of keys, called in order. Each returns null for a key of another kind. */
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
 * Creates a middleware that authenticates requests by `Authorization: Bearer <key>` or `x-api-key: <key>` and sets the variables `principal` and
 * `charged` of the request. A request without a valid key is answered 401, a request that its session key does not permit, 403.
 */
export function requireKey(credentials: Credentials): MiddlewareHandler<ServiceEnvironment> {
  const { apiKey, service, open, chargedFor } = credentials;
  const expectedDigest = digest(apiKey);
  /** Whether a key is the service's own. Digests are compared in constant time, so that timing reveals neither the key nor its length. */
  const isServiceKey = (key: string): boolean => timingSafeEqual(digest(key), expectedDigest);
  return async function requireKeyMiddleware(c, next) {
    const key = presentedKey(c.env.incoming.headers);
    const isService = key !== undefined && isServiceKey(key);
    if (open(c.req.path)) {
      // Public routes may show more to the holder of the service's own key.
      if (isService) c.set("principal", service);
      return next();
    }
    const result = isService ? service : await authenticate(credentials, c, key);
    if ("status" in result) return rejection(result);
    c.set("principal", result);
    const { id, visibility, limits } = result;
    if (limits === null) return next();
    const charged = await chargedFor({ key: id, entity: visibility.entity, limits });
    c.set("charged", charged);
    await next();
    for (const [name, value] of Object.entries(rateLimitHeaders(charged.accounts))) c.header(name, value);
  };
}

/** Checks the credential of a request without the service's own key. */
async function authenticate(credentials: Credentials, c: ServiceRequest, key: string | undefined): Promise<Authentication> {
  if (key === undefined) return authenticateWithoutKey(credentials, c);
  for (const check of credentials.keys) {
    const result = await check(c, key);
    if (result !== null) return result;
  }
  return { status: 401, reason: "The API key is not the one of this service" };
}

/** Checks the dashboard session of a request without a key. */
function authenticateWithoutKey({ service, dashboardSession }: Credentials, c: ServiceRequest): Authentication {
  if (c.env.incoming.headers.authorization !== undefined)
    return { status: 401, reason: "Expected the header 'Authorization' to be 'Bearer <key>'" };
  const session = dashboardSession(c);
  if (session === true) return service;
  const missing =
    "Expected the header 'Authorization: Bearer <key>', got none. The key is WHETSTONE_API_KEY, or the file api-key in the service's data directory";
  return { status: 401, reason: session ?? missing };
}

/** Returns the response to a rejected request. */
function rejection({ status, reason: message }: Rejection): Response {
  if (status === 403) return errorResponse(403, { message, code: "E_FORBIDDEN" });
  return errorResponse(401, { message, code: "E_UNAUTHORIZED", headers: { "WWW-Authenticate": "Bearer" } });
}
