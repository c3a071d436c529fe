/** Login of browsers at the dashboard: one-time codes, and sessions that a cookie names. */
import { randomBytes } from "node:crypto";

/** Milliseconds for which a one-time code is valid. */
const CODE_MS = 60_000;
/** Milliseconds for which a session is valid. */
const SESSION_MS = 12 * 3_600_000;
/** Methods that change nothing. */
const SAFE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD"]);

/** Headers of a request that identify its session and its sender. */
export interface SessionRequest {
  readonly method: string;
  /** Header `Host`. */
  readonly host: string | undefined;
  /** Value of the session cookie. */
  readonly token: string | undefined;
  /** Header `Origin`. */
  readonly origin: string | undefined;
  /** Header `Sec-Fetch-Site`. */
  readonly fetchSite: string | undefined;
}

/** Session of a browser. */
interface Session {
  /** `Host` header of the login. */
  readonly host: string;
  /** End of the session in milliseconds since 1970. */
  readonly expiresMs: number;
}

/**
 * Browser sessions of the dashboard, in memory: they end with the service.
 *
 * A one-time code, which only a holder of the API key can create, becomes a session when a browser visits the login page. A session is
 * bound to the host name of the login, so that a name rebound to this address has no session, and to the origin of the page, so that other
 * pages, also those on other ports of the same host, cannot use it.
 */
export class BrowserSessions {
  readonly #now: () => number;
  /** Expiry of each unused code, in milliseconds since 1970. */
  readonly #codes = new Map<string, number>();
  /** Sessions by token. */
  readonly #sessions = new Map<string, Session>();

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** Creates a code for one login. */
  createCode(): { readonly code: string; readonly expires: string } {
    this.#removeExpired();
    const code = randomBytes(32).toString("base64url");
    const expiresMs = this.#now() + CODE_MS;
    this.#codes.set(code, expiresMs);
    return { code, expires: new Date(expiresMs).toISOString() };
  }

  /** Creates a session from a code; returns null if the code is unknown, used or expired. */
  redeem(code: string, host: string): { readonly token: string; readonly maxAgeSeconds: number } | null {
    this.#removeExpired();
    if (!this.#codes.delete(code)) return null;
    const token = randomBytes(32).toString("base64url");
    this.#sessions.set(token, { host, expiresMs: this.#now() + SESSION_MS });
    return { token, maxAgeSeconds: SESSION_MS / 1000 };
  }

  /** Returns the end of a session, ISO 8601; null if the session does not exist. */
  expiryOf(token: string | undefined): string | null {
    const session = token === undefined ? undefined : this.#sessions.get(token);
    return session === undefined ? null : new Date(session.expiresMs).toISOString();
  }

  /**
   * Checks whether a session authorizes a request.
   *
   * @returns true, or the reason for the rejection; null if the request has no session.
   */
  check({ method, host, token, origin, fetchSite }: SessionRequest): true | string | null {
    if (token === undefined) return null;
    this.#removeExpired();
    const session = this.#sessions.get(token);
    if (session === undefined) return "The session of the dashboard is over. Run `whetstone ui` for a new link";
    if (session.host !== host) return `The session of the dashboard belongs to the host ${session.host}, and the request is for ${host}`;
    if (origin !== undefined && origin !== `http://${host}` && origin !== `https://${host}`) {
      return `The session of the dashboard is for pages of this service, and the request is from ${origin}`;
    }
    // `none` is an address typed by the user.
    const isOwnSite = fetchSite === "same-origin" || (fetchSite === "none" && SAFE_METHODS.has(method));
    if (fetchSite !== undefined && !isOwnSite) return "The session of the dashboard is for pages of this service";
    if (!SAFE_METHODS.has(method) && origin === undefined && fetchSite === undefined) {
      return "Expected a request with the session of the dashboard to have the header Origin or Sec-Fetch-Site";
    }
    return true;
  }

  /** Removes codes and sessions that are over. */
  #removeExpired(): void {
    const now = this.#now();
    for (const [code, expiresMs] of this.#codes) if (expiresMs <= now) this.#codes.delete(code);
    for (const [token, { expiresMs }] of this.#sessions) if (expiresMs <= now) this.#sessions.delete(token);
  }
}
