/** Routes with descriptions. The same table registers the routes with the app and generates the OpenAPI document. */
import type { Hono } from "hono";
import { matchedRoutes } from "hono/route";
import type { z } from "zod";
import { ForbiddenError } from "../../base/errors.ts";
import type { KeyScope } from "../../base/schema/index.ts";
import type { ServiceEnvironment, ServiceRequest } from "../http/body.ts";
import type { ErrorStatus } from "../http/errors.ts";
import { principalOf, type Principal } from "../http/principal.ts";

/** Tags of the document, in order. */
export const TAGS = [
  "Chat",
  "Sessions",
  "Rollouts",
  "Models",
  "Checkpoints",
  "Training jobs",
  "Artifacts",
  "Fine-tuning",
  "Service",
] as const;

/** Contents of a body: a schema for JSON, or unstructured text or bytes. */
export type Contents = z.ZodType | "text" | "binary";

/** Body of the type multipart/form-data: one file, and fields. */
export interface FormBody {
  /** Schema of the fields. The members of an object field are fields of their own, such as `expires_after[seconds]`. */
  readonly form: z.ZodObject;
  /** Name of the file's field. */
  readonly file: string;
}

/** Successful response other than plain JSON with status 200. */
export interface RouteAnswer {
  readonly description: string;
  /** Contents by media type. */
  readonly content: Readonly<Record<string, Contents>>;
  /** Descriptions by header name. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Description of a route. */
export interface RouteSpec {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** OpenAPI path template. A final parameter named `path` or `model` matches the rest of the path, including slashes. */
  readonly path: string;
  /** Unique, permanent operation id. Client generators derive function names from it. */
  readonly id: string;
  readonly tag: (typeof TAGS)[number];
  readonly summary: string;
  readonly description?: string | undefined;
  /**
   * Scopes of API keys that permit the route: any of them suffices, and `admin` always does. "public": the path, with any method, needs no
   * API key.
   */
  readonly access: "public" | readonly KeyScope[];
  /**
   * Whether a session key permits the route. With a parameter `session_id`, only for the key's own session.
   *
   * @default false
   */
  readonly isForSessions?: boolean | undefined;
  /** Whether the route is an extension of the interface that the service implements. @default false */
  readonly isExtension?: boolean | undefined;
  readonly query?: z.ZodObject | undefined;
  readonly body?: Contents | FormBody | undefined;
  /** Whether the route supports the header `Idempotency-Key`. @default false */
  readonly isIdempotent?: boolean | undefined;
  /** Response with status 200. */
  readonly answer: z.ZodType | RouteAnswer;
  /** Responses with other statuses and a body that is not an error body. @default none */
  readonly otherAnswers?: Readonly<Partial<Record<ErrorStatus, z.ZodType>>> | undefined;
  /** Error statuses in addition to the implied ones (see `document.ts`). @default none */
  readonly errors?: readonly ErrorStatus[] | undefined;
  /** Schema of error bodies. @default the error body of the service */
  readonly errorBody?: z.ZodType | undefined;
  /** Status of a validation error. @default 422 */
  readonly validationStatus?: 400 | 422 | undefined;
}

/** Route description with its handler. */
export interface Route extends RouteSpec {
  readonly handle: (c: ServiceRequest) => Response | Promise<Response>;
}

/** Returns the pattern of the route that handles a request; undefined without a route. */
export function matchedPattern(c: ServiceRequest): string | undefined {
  // Middleware is registered for all methods.
  return matchedRoutes(c).findLast(({ method }) => method !== "ALL")?.path;
}

/** Returns a path parameter. Never empty, because the router does not match empty parameters. */
export function pathParameter(c: ServiceRequest, name: string): string {
  return c.req.param(name) ?? "";
}

/** Returns the names of the parameters in a path template. */
export function pathParametersOf({ path }: Pick<RouteSpec, "path">): string[] {
  return [...path.matchAll(/\{(\w+)\}/gu)].map(([, name = ""]) => name);
}

/** Returns the scopes that permit a route, of which a key needs one; null for a public route. */
export function permittingScopes({ access }: Pick<RouteSpec, "access">): readonly KeyScope[] | null {
  return access === "public" ? null : [...new Set<KeyScope>([...access, "admin"])];
}

/**
 * Checks that a principal has one of the scopes that permit a route. Session keys are checked before the route is known, see
 * `sessionPermissions`.
 *
 * @throws ForbiddenError `E_FORBIDDEN` otherwise.
 */
function requireScope({ method, path }: RouteSpec, permitting: readonly KeyScope[], { scopes, sessionKey }: Principal): void {
  if (sessionKey !== null || permitting.some((scope) => scopes.includes(scope))) return;
  const quote = (list: readonly KeyScope[]) => list.map((scope) => `'${scope}'`);
  throw new ForbiddenError(
    `${method} ${path} needs an API key with the scope ${quote(permitting).join(" or ")}; this key has ${quote(scopes).join(", ")}`,
  );
}

/** Returns the pattern of a route's path for the router. */
export function patternOf({ path }: Pick<RouteSpec, "path">): string {
  return path
    .replace(/\{path\}$/u, "*")
    .replace(/\{model\}$/u, ":model{.+}")
    .replaceAll(/\{(\w+)\}/gu, ":$1");
}

/** Registers routes with an app. A handler is called for principals with a scope that permits its route. */
export function register(app: Hono<ServiceEnvironment>, routes: readonly Route[]): void {
  for (const route of routes) {
    const { method, handle } = route;
    const scopes = permittingScopes(route);
    app.on(method, patternOf(route), (c) => {
      if (scopes !== null) requireScope(route, scopes, principalOf(c));
      return handle(c);
    });
  }
}
