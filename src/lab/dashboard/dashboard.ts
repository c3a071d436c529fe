/** The dashboard as routes of the service: page, login, and the data routes of `routes.ts`. */
import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import { type Context, Hono, type MiddlewareHandler } from "hono";
import { getCookie, setCookie } from "hono/cookie";
import { z } from "zod";
import { pageFiles, type PageFiles } from "../../base/util/page-files.ts";
import { requireValid } from "../../base/util/validation.ts";
import { loginPage, pageHtml } from "./html.ts";
import { dataRoutes } from "./routes.ts";
import { Rollouts } from "./rollouts.ts";
import { Runs } from "./runs.ts";
import { BrowserSessions } from "./session.ts";

/** Options of {@link createDashboard}. */
export interface DashboardOptions {
  /** Directories to search for runs. */
  readonly runs: readonly string[];
  /** Data directory of the service. */
  readonly dataDir: string;
  /** Clock of codes and sessions in milliseconds since 1970. @default Date.now */
  readonly now?: (() => number) | undefined;
  /** Interval in milliseconds at which the files of running runs are checked. @default 250 */
  readonly pollMs?: number | undefined;
}

/** Dashboard of a service: routes below `/ui`. */
export interface Dashboard {
  readonly app: Hono;
  /** Whether a path needs neither key nor session: the page, its files and the login. They contain no data of the user. */
  isPublic(path: string): boolean;
  /** Whether a path requires the API key: a session of a browser cannot create sessions or open directories. */
  requiresKey(path: string): boolean;
  /** Returns true if the session cookie authorizes a request, the reason if it does not, or null without a cookie. */
  checkSession(c: Context): true | string | null;
  /** Ends all streams. */
  close(): void;
}

/** Paths that need neither key nor session. */
const PUBLIC_PATHS: ReadonlySet<string> = new Set(["/ui", "/ui/", "/ui/login", "/ui/page.js", "/ui/page.css"]);
/** Paths for which a session is not enough. */
const KEY_PATHS: ReadonlySet<string> = new Set(["/ui/api/links", "/ui/api/directories"]);

/** Schema of the body of `POST /ui/api/directories`. */
const directoriesBody = z.strictObject({ paths: z.array(z.string().min(1)).max(100) });

/** Headers of every answer below `/ui`. */
const secureHeaders: MiddlewareHandler = async (c, next) => {
  await next();
  c.header("X-Content-Type-Options", "nosniff");
  c.header("Referrer-Policy", "no-referrer");
  c.header("Cross-Origin-Resource-Policy", "same-origin");
  if (!c.res.headers.has("Cache-Control")) c.header("Cache-Control", "no-store");
};

/** Creates the dashboard. Nothing is read before the first request. */
export function createDashboard({ runs: roots, dataDir, now, pollMs }: DashboardOptions): Dashboard {
  const runs = new Runs(roots, pollMs);
  const sessions = new BrowserSessions(now);
  const ending = new AbortController();
  const app = new Hono();
  app.use(secureHeaders);
  let pageFilesPromise: Promise<PageFiles> | undefined;
  /** Reads script and style at the first request, once. */
  const files = (): Promise<PageFiles> => {
    pageFilesPromise ??= pageFiles("dashboard");
    return pageFilesPromise;
  };

  app.get("/ui", (c) => c.redirect("/ui/", 308));
  app.get("/ui/", async (c) => {
    const nonce = randomBytes(16).toString("base64");
    const { html, policy } = pageHtml(nonce);
    c.header("Content-Security-Policy", policy);
    return c.html(html);
  });
  app.get("/ui/page.js", async (c) => c.body((await files()).script, 200, { "content-type": "text/javascript; charset=utf-8" }));
  app.get("/ui/page.css", async (c) => c.body((await files()).style, 200, { "content-type": "text/css; charset=utf-8" }));
  app.get("/ui/login", (c) => {
    const host = c.req.header("host") ?? "";
    // HEAD must not use up the code.
    const session = c.req.method === "GET" ? sessions.redeem(c.req.query("code") ?? "", host) : null;
    if (session === null) {
      const { html, policy } = loginPage();
      c.header("Content-Security-Policy", policy);
      return c.html(html, 401);
    }
    const isSecure = new URL(c.req.url).protocol === "https:";
    const attributes = { path: "/", httpOnly: true, sameSite: "Strict", secure: isSecure } as const;
    setCookie(c, cookieName(c), session.token, { ...attributes, maxAge: session.maxAgeSeconds });
    return c.redirect("/ui/", 303);
  });

  app.get("/ui/api/session", (c) => c.json({ expires: sessions.expiryOf(getCookie(c, cookieName(c))) }));
  app.post("/ui/api/links", (c) => {
    const { code, expires } = sessions.createCode();
    return c.json({ url: `${new URL(c.req.url).origin}/ui/login?code=${code}`, expires }, 201);
  });
  app.post("/ui/api/directories", async (c) => {
    const { paths } = requireValid(directoriesBody, await c.req.json().catch(() => undefined));
    // Nothing about the paths is reported: the key would show which of them exist.
    for (const path of paths) runs.addRoot(path);
    return c.json({ directories: paths.map((path) => resolve(path)) });
  });
  app.route("/ui/api", dataRoutes({ runs, rollouts: new Rollouts(), dataDir, signal: ending.signal }));

  return {
    app,
    isPublic: (path) => PUBLIC_PATHS.has(path),
    requiresKey: (path) => KEY_PATHS.has(path),
    checkSession: (c) =>
      sessions.check({
        method: c.req.method,
        host: c.req.header("host"),
        token: getCookie(c, cookieName(c)),
        origin: c.req.header("origin"),
        fetchSite: c.req.header("sec-fetch-site"),
      }),
    close: () => ending.abort(),
  };
}

/** Returns the name of the session cookie. Browsers share the cookies of a host among its ports, so the name contains the port. */
function cookieName(c: Context): string {
  return `whetstone_${new URL(c.req.url).port || "default"}`;
}
