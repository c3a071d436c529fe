/** Reading of requests: the Hono environment of all routes, limits on bodies, and the reading of body and query. */
import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import type { z } from "zod";
import { TooLargeError } from "../../base/errors.ts";
import { isChatPath } from "./errors.ts";
import { REQUEST_LIMITS } from "./request-limits.ts";
import type { JsonBody, PlainBody, PlainKind } from "./requests.ts";
import { requireValid } from "../../base/util/validation.ts";
import type { BodyReader } from "./body-reader.ts";
import type { Charged } from "../quotas/quotas.ts";
import type { Principal } from "./principal.ts";

/** Hono environment of every route. */
export interface ServiceEnvironment {
  Bindings: HttpBindings;
  Variables: {
    /** Identity of the caller, set by the authentication; read it with `principalOf`. */
    principal: Principal;
    /** Accounts that the request is charged to; absent for a principal without limits. */
    charged: Charged;
  };
}

/** Hono context of a request, by convention named `c`. */
export type ServiceRequest = Context<ServiceEnvironment>;

function tooLargeError(maxBytes: number): TooLargeError {
  return new TooLargeError(`Expected a body of at most ${maxBytes} bytes. Send less at once, or raise the service's limit`);
}

/** Path of the outcome of a rollout task. */
const OUTCOME_PATH = /^\/v1\/preview\/rollout-tasks\/[^/]+\/outcome$/u;

/**
 * Returns the max length in bytes of a body sent to `path`. Requests of training jobs and outcomes of rollout tasks contain trajectories, which
 * only the limit of the service bounds.
 *
 * @param maxBodyBytes - Limit of the service for every JSON body.
 */
export function maxBytesOf(path: string, maxBodyBytes: number): number {
  if (path.startsWith("/v1/preview/training-jobs") || OUTCOME_PATH.test(path)) return maxBodyBytes;
  const { chat, model } = REQUEST_LIMITS;
  return Math.min(maxBodyBytes, (isChatPath(path) ? chat : model).body.bytes);
}

/**
 * Creates a middleware that rejects bodies over their limit before a route reads them. A stated `Content-Length` is trusted, because Node's
 * parser enforces it; only a chunked body is counted, which is much slower.
 *
 * @param maxBytes - Returns the limit of a path in bytes.
 */
export function limitBody(maxBytes: (path: string) => number): MiddlewareHandler<ServiceEnvironment> {
  return function limitBodyMiddleware(c, next) {
    const { headers } = c.env.incoming;
    const maxSize = maxBytes(c.req.path);
    const onError = () => {
      throw tooLargeError(maxSize);
    };
    if (headers["transfer-encoding"] !== undefined) return bodyLimit({ maxSize, onError })(c, next);
    if (Number(headers["content-length"] ?? 0) > maxSize) throw tooLargeError(maxSize);
    return next();
  };
}

/**
 * Max length in bytes of a small body. Small bodies are joined from their parts at once and bypass the budget; the number of such bodies is
 * bounded by the number of connections.
 */
export const SMALL_BODY_BYTES = 1024 * 1024;

/**
 * Reads a body. A large body with a stated length is written into one preallocated buffer as it arrives: joining the parts of 64 MiB takes
 * hundreds of milliseconds and blocks the event loop.
 */
export async function readBytes(c: ServiceRequest): Promise<Uint8Array> {
  const { incoming } = c.env;
  const length = Number(incoming.headers["content-length"] ?? 0);
  if (length <= SMALL_BODY_BYTES) return new Uint8Array(await c.req.arrayBuffer());
  // Node's parser ends the body after exactly this length, or fails.
  const bytes = new Uint8Array(length);
  let filledBytes = 0;
  for await (const part of incoming as AsyncIterable<Uint8Array>) {
    bytes.set(part, filledBytes);
    filledBytes += part.length;
  }
  return bytes;
}

/** Reads and validates a JSON body. @throws ArgumentError `E_ARGUMENT`, see `readBody` of `requests.ts`. */
export async function readJson<K extends PlainKind>(c: ServiceRequest, kind: K, reader: BodyReader): Promise<JsonBody<PlainBody<K>>> {
  return reader.read(kind, await readBytes(c), c.req.raw.signal);
}

/** Reads and validates the query. Of a repeated name, only the last value counts. */
export function readQuery<S extends z.ZodType>(c: ServiceRequest, schema: S): z.output<S> {
  return requireValid(schema, c.req.query());
}
