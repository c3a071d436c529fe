import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import type { z } from "zod";
import { TooLargeError } from "../errors.ts";
import { isChatPath } from "./http-errors.ts";
import { REQUEST_LIMITS } from "./request-limits.ts";
import type { JsonBody, PlainBody, PlainKind } from "./requests.ts";
import { validate } from "./validation.ts";
import type { RequestWork } from "./work/request-work.ts";

/** The bindings of every route. */
export interface ServiceEnvironment {
  Bindings: HttpBindings;
}
export type ServiceRequest = Context<ServiceEnvironment>;

function tooLarge(maxBytes: number): TooLargeError {
  return new TooLargeError(`Expected a body of at most ${maxBytes} bytes. Send less at once, or raise the service's limit`);
}

/**
 * Bytes that a body sent to `path` may have.
 *
 * @param maxBodyBytes - Bound of the service for every JSON body.
 */
export function maxBytesOf(path: string, maxBodyBytes: number): number {
  if (path.startsWith("/v1/preview/training-jobs")) return maxBodyBytes;
  const { chat, model } = REQUEST_LIMITS;
  return Math.min(maxBodyBytes, (isChatPath(path) ? chat : model).body.bytes);
}

/**
 * Refuses bodies over their limit before a route reads them. The length that a client states is believed, because Node's parser
 * holds it to that; only a chunked body has to be counted, which is much slower.
 *
 * @param maxBytes - The limit, by path.
 */
export function limitBody(maxBytes: (path: string) => number): MiddlewareHandler<ServiceEnvironment> {
  return function limitBodyMiddleware(c, next) {
    const { headers } = c.env.incoming;
    const max = maxBytes(c.req.path);
    const onError = () => {
      throw tooLarge(max);
    };
    if (headers["transfer-encoding"] !== undefined) return bodyLimit({ maxSize: max, onError })(c, next);
    if (Number(headers["content-length"] ?? 0) > max) throw tooLarge(max);
    return next();
  };
}

/** Reads and validates a JSON body. @throws ArgumentError `E_ARGUMENT`, see `readBody` of `requests.ts`. */
export async function readJson<K extends PlainKind>(c: ServiceRequest, kind: K, work: RequestWork): Promise<JsonBody<PlainBody<K>>> {
  return work.readBody(kind, new Uint8Array(await c.req.arrayBuffer()), c.req.raw.signal);
}

/** Reads and validates the query. A name that comes twice counts once, as the last. */
export function readQuery<S extends z.ZodType>(c: ServiceRequest, schema: S): z.output<S> {
  return validate(schema, c.req.query());
}
