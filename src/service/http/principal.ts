/** Principals: identities that credentials of requests prove, and their rights. */
import { createHash } from "node:crypto";
import { ForbiddenError, InternalError } from "../../base/errors.ts";
import type { KeyLimits, KeyScope } from "../../base/schema/index.ts";
import { DEFAULT_ENTITY } from "../common/names.ts";
import { ALL_ROWS, type Visibility } from "../store/visibility.ts";
import type { ServiceRequest } from "./body.ts";

/** Identity that a request has proved with its credential. */
export interface Principal {
  /** Name of the principal. Sampled ids are not shared between principals. */
  readonly id: string;
  /** Rows that the principal may see. */
  readonly visibility: Visibility;
  /** Rights of an API key. A session key has none: it permits only the routes marked with `isForSessions`. */
  readonly scopes: readonly KeyScope[];
  /** Owner of the stored responses that the principal creates and may read. */
  readonly owner: string;
  /** Session key that authenticated the request; null for other credentials. */
  readonly sessionKey: string | null;
  /** Limits of the credential itself; null for a principal that no limits apply to: the service's own key, and its jobs. */
  readonly limits: KeyLimits | null;
}

/** Returns the principal of the service's own key: the administrator of all entities. */
export function servicePrincipal(apiKey: string): Principal {
  const owner = createHash("sha256").update(apiKey).digest("hex");
  return { id: "service", visibility: ALL_ROWS, scopes: ["admin"], owner, sessionKey: null, limits: null };
}

/** Returns the principal of a training job's requests, which see the rows that its creator saw. */
export function jobPrincipal(visibility: Visibility): Principal {
  return { id: "jobs", visibility, scopes: ["sample"], owner: "", sessionKey: null, limits: null };
}

/** Whether a principal administers all entities. */
export function isAdministrator({ visibility, scopes }: Principal): boolean {
  return visibility.entity === null && scopes.includes("admin");
}

/** Returns the principal of a request. Requests of public routes have none. */
export function principalOf(c: ServiceRequest): Principal {
  const principal = c.get("principal") as Principal | undefined;
  if (principal === undefined) throw new InternalError(`Expected a principal for ${c.req.method} ${c.req.path}, got none`);
  return principal;
}

/**
 * Checks that the principal of a request administers all entities.
 *
 * @param action - Action of the request, as in "does not permit reading the metrics".
 * @throws ForbiddenError `E_FORBIDDEN` if it does not.
 */
export function requireAdministrator(c: ServiceRequest, action: string): void {
  if (isAdministrator(principalOf(c))) return;
  throw new ForbiddenError(
    `The API key is bound to an entity and does not permit ${action}. Use the service's own key, or an administrator's key without an entity`,
  );
}

/**
 * Returns the namespace of a principal in caches with hits that a client can observe, so that no entity learns which prompts another one has
 * sent. Null for the service's own key and for the default entity, which share one namespace.
 */
export function cacheNamespace({ visibility: { entity } }: Principal): string | null {
  return entity === DEFAULT_ENTITY ? null : entity;
}
