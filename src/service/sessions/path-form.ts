/** URLs with a session in their path, for agents that can be given a URL but no API key. */
import { timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { presentedKey, type Authentication } from "../http/auth.ts";
import { findSession } from "../store/sessions.ts";
import type { SessionRow } from "../store/tables.ts";
import { hashSessionKey, isSessionKey } from "./keys.ts";
import type { StoredSessions } from "./sessions.ts";

/** URL of a request with a session in its path; `route` is the URL without the session. */
const SESSION_URL = /^\/sessions\/(?<session>[^/?]+)(?<route>\/[^?]*(?:\?.*)?)$/u;

/** Credentials of requests with the id of a session in their path. */
export interface PathCredentials {
  /** The API key of the service. */
  readonly apiKey: string;
  /** Other API keys. */
  readonly keys: { readonly authenticate: (key: string) => Promise<Authentication | null> };
}

/**
 * Returns a function that turns a request to `/sessions/{session}/…`, such as `/sessions/whs-…/v1/chat/completions`, into the request to
 * `/…` with the key of the session.
 *
 * `{session}` is the key of a session, and other keys of the request are ignored; or its id, and the request has the key of the session,
 * of the service, or an API key that may sample for the session. All other requests stay unchanged.
 *
 * @returns a function that changes the request in place: at once, with the result undefined, or after a query of the database. It rejects with
 *   the error of the database if the session or the key cannot be read.
 */
export function sessionPaths(
  sessions: StoredSessions,
  { apiKey, keys }: PathCredentials,
): (request: IncomingMessage) => Promise<void> | undefined {
  /** Returns the session key for a request with the id of a session; null if the key of the request does not permit the session. */
  const keyOf = async (id: string, { headers }: IncomingMessage): Promise<string | null> => {
    const presented = presentedKey(headers);
    if (presented === undefined) return null;
    const row = await findSession(sessions.store, id);
    if (row === undefined) return null;
    if (isEqual(presented, apiKey)) return sessions.known.keyForService(row, apiKey);
    if (isEqual(hashSessionKey(presented), row.key)) return presented;
    return maySample(await keys.authenticate(presented), row) ? sessions.known.keyForService(row, apiKey) : null;
  };
  return (request) => {
    const groups = SESSION_URL.exec(request.url ?? "")?.groups;
    if (groups === undefined) return undefined;
    const { session = "", route = "" } = groups;
    const rewrite = (key: string): void => {
      delete request.headers["x-api-key"];
      request.headers.authorization = `Bearer ${key}`;
      request.url = route;
    };
    if (!isSessionKey(session)) return keyOf(session, request).then((key) => (key === null ? undefined : rewrite(key)));
    rewrite(session);
    return undefined;
  };
}

/** Whether an API key may send requests of a session: it has the scope, and neither its entity nor its model excludes the session. */
function maySample(principal: Authentication | null, { entity, model_id: model }: SessionRow): boolean {
  if (principal === null || "status" in principal) return false;
  const { scopes, visibility } = principal;
  const isVisible = (visibility.entity ?? entity) === entity && (visibility.modelId ?? model) === model;
  return isVisible && (scopes.includes("sample") || scopes.includes("admin"));
}

/** Compares secrets in a time that does not depend on their characters. */
function isEqual(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
