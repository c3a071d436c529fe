/** Authorization of requests with the key of a session. */
import type { Credentials } from "../http/auth.ts";
import type { Principal } from "../http/principal.ts";
import { isSessionKey } from "./keys.ts";
import type { KnownSession, KnownSessions } from "./known-sessions.ts";

/** Route as the permissions of a session see it. */
export interface GuardedRoute {
  readonly method: string;
  /** OpenAPI path template. */
  readonly path: string;
  /** Whether a session key permits the route. @default false */
  readonly isForSessions?: boolean | undefined;
}

/** Returns a pattern of a route's path. Its group `session` is the id of the session, for a path that has one. */
function patternOf(path: string): RegExp {
  return new RegExp(`^${path.replaceAll(/\{(\w+)\}/gu, (_, name) => (name === "session_id" ? "(?<session>[^/]+)" : "[^/]+"))}$`, "u");
}

/** Returns the principal of a session key. All keys of a session have the same owner, the hash of its first key, which no other principal has. */
function principalOfSession({ key: owner, entity }: KnownSession, sessionKey: string): Principal {
  return { id: `sessions:${entity}`, visibility: { entity, modelId: null }, scopes: [], owner, sessionKey, limits: {} };
}

/**
 * Creates the credentials of sessions for `requireKey`: the key of a session permits the routes that are marked with `isForSessions`; if such
 * a route has the id of a session in its path, only with the id of the key's session.
 */
export function sessionPermissions(routes: readonly GuardedRoute[], sessions: Pick<KnownSessions, "withKey">): Credentials["keys"][number] {
  const permitted = routes
    .filter(({ isForSessions }) => isForSessions === true)
    .map(({ method, path }) => ({ method, pattern: patternOf(path) }));
  return async (c, key) => {
    if (!isSessionKey(key)) return null;
    const session = await sessions.withKey(key);
    if (session === undefined) return null;
    const { method, path } = c.req;
    for (const route of permitted) {
      const match = route.method === method ? route.pattern.exec(path) : null;
      if (match === null) continue;
      const id = match.groups?.["session"]?.toLowerCase();
      if (id === undefined || id === session.id) return principalOfSession(session, key);
      return { status: 403, reason: "The key of a session permits changes of its own session alone" };
    }
    const reason = `The key of a session permits sampling, its own stored responses, and reward, metrics and end of its own session; it does not permit ${method} ${path}`;
    return { status: 403, reason };
  };
}
