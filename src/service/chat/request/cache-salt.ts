/** Salts of the prefix cache, by which an entity finds no prompts of another entity in it: a request reads only entries with its own salt. */
import { createHmac, randomBytes } from "node:crypto";
import type { Engine } from "../../../engine/port.ts";
import { UnsupportedError } from "../../../base/errors.ts";
import { cacheNamespace, type Principal } from "../../http/principal.ts";

/** Key of the salts, so that a client cannot send the salt of another entity. */
const SECRET = randomBytes(32);

/**
 * Returns the salt of the prefix cache for a request: the requested one in the default namespace, otherwise a digest of namespace and
 * requested salt.
 *
 * @param requested - Salt in the request; null without one.
 */
export function cacheSaltOf(requested: string | null, principal: Principal): string | null {
  const namespace = cacheNamespace(principal);
  if (namespace === null) return requested;
  return createHmac("sha256", SECRET)
    .update(JSON.stringify([namespace, requested]))
    .digest("base64url");
}

/** Returns the error for a sampler that cannot keep the prompts of entities apart. @param sampler - Name for the message. */
export function sharedCacheError(sampler: string): UnsupportedError {
  return new UnsupportedError(
    `${sampler} has one prefix cache without salts, in which one entity could find the prompts of another: it samples for the service's own key and for keys of the entity 'local' alone`,
    { param: "model" },
  );
}

/** Checks that an engine separates the prefix cache by salts. @throws UnsupportedError `E_UNSUPPORTED` if it does not. */
export function requireCacheSalts(engine: Engine): void {
  const { name, cacheSalts = true } = engine.capabilities();
  if (!cacheSalts) throw sharedCacheError(`The engine "${name}" of this service`);
}
