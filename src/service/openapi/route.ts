/** Routes with their description: one table registers them with the app and makes the OpenAPI document. */
import type { Hono } from "hono";
import type { z } from "zod";
import type { ServiceEnvironment, ServiceRequest } from "../body.ts";
import type { ErrorStatus } from "../http-errors.ts";

/** Groups of the document, in its order. */
export const TAGS = ["Chat", "Models", "Checkpoints", "Training jobs", "Artifacts", "Service"] as const;

/** Contents of a body: a schema for JSON, or text or bytes without a structure of their own. */
export type Contents = z.ZodType | "text" | "binary";

/** A successful answer that is not just JSON with status 200. */
export interface Answer {
  readonly description: string;
  /** Contents by media type. */
  readonly content: Readonly<Record<string, Contents>>;
  /** Description per header. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Description of a route. */
export interface RouteSpec {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** OpenAPI template. A parameter named `path` at the end takes the rest of the path, slashes included. */
  readonly path: string;
  /** Unique and permanent: generators of clients name functions after it. */
  readonly id: string;
  readonly tag: (typeof TAGS)[number];
  readonly summary: string;
  readonly description?: string | undefined;
  /** Needs no key, and neither does its path with other methods. @default false */
  readonly isPublic?: boolean | undefined;
  /** Added to the interface that the service implements. @default false */
  readonly isExtension?: boolean | undefined;
  readonly query?: z.ZodObject | undefined;
  readonly body?: Contents | undefined;
  /** Honors the header `Idempotency-Key`. @default false */
  readonly isIdempotent?: boolean | undefined;
  /** Answer with status 200. */
  readonly answer: z.ZodType | Answer;
  /** Answers with another status that are not an error body. @default none */
  readonly otherAnswers?: Readonly<Record<number, z.ZodType>> | undefined;
  /** Statuses of errors besides the ones that the description implies (see `document.ts`). @default none */
  readonly errors?: readonly ErrorStatus[] | undefined;
  /** Status of a body that does not validate. @default 422 */
  readonly validationStatus?: 400 | 422 | undefined;
}

/** A described route with its handler. */
export interface Route extends RouteSpec {
  readonly handle: (c: ServiceRequest) => Response | Promise<Response>;
}

/** Makes a route. */
export function route(spec: RouteSpec, handle: Route["handle"]): Route {
  return { ...spec, handle };
}

/** Reads a path parameter; the router matches no empty ones. */
export function pathParameter(c: ServiceRequest, name: string): string {
  return c.req.param(name) ?? "";
}

/** Names of the parameters in a path. */
export function parametersOf({ path }: Pick<RouteSpec, "path">): string[] {
  return [...path.matchAll(/\{(\w+)\}/gu)].map(([, name = ""]) => name);
}

/** Registers routes with an app. */
export function register(app: Hono<ServiceEnvironment>, routes: readonly Route[]): void {
  for (const { method, path, handle } of routes) {
    const pattern = path.replace(/\{path\}$/u, "*").replaceAll(/\{(\w+)\}/gu, ":$1");
    app.on(method, pattern, handle);
  }
}
