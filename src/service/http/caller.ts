/** Sender of a request, for logs, metrics and the audit log. */
import { DEFAULT_ENTITY } from "../common/names.ts";
import type { ServiceRequest } from "./body.ts";
import type { Principal } from "./principal.ts";

/** Sender of a request. */
export interface Caller {
  /** Entity of the key; the default entity for the service's own key, and without a recognized key. */
  readonly entity: string;
  /** Identifier of the key, which does not reveal it: `service`, `key:` and the id of an API key, `sessions:` and an entity; or `none`. */
  readonly keyId: string;
}

/** Returns the principal of a request; undefined without a recognized key. */
function findPrincipal(c: ServiceRequest): Principal | undefined {
  return c.get("principal") as Principal | undefined;
}

/** Whether the request has a recognized key. */
export function isAuthenticated(c: ServiceRequest): boolean {
  return findPrincipal(c) !== undefined;
}

/** Returns the sender of a request. */
export function callerOf(c: ServiceRequest): Caller {
  const principal = findPrincipal(c);
  return { entity: principal?.visibility.entity ?? DEFAULT_ENTITY, keyId: principal?.id ?? "none" };
}
