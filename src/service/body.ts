import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import type { HttpBindings } from "@hono/node-server";
import type { Context, MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import type { z } from "zod";
import { ArgumentError, TooLargeError } from "../errors.ts";
import { UnreadableBodyError } from "./http-errors.ts";
import { validate } from "./validation.ts";

/** The bindings of every route. */
export interface ServiceEnvironment {
  Bindings: HttpBindings;
}
export type ServiceRequest = Context<ServiceEnvironment>;

function tooLarge(maxBytes: number): TooLargeError {
  return new TooLargeError(`Expected a body of at most ${maxBytes} bytes. Send less at once, or raise the service's limit`);
}

/**
 * Refuses bodies over `maxBytes` before a route reads them. The length that a client states is believed, because Node's parser
 * holds it to that; only a chunked body has to be counted, which is much slower.
 */
export function limitBody(maxBytes: number): MiddlewareHandler<ServiceEnvironment> {
  const counted = bodyLimit({
    maxSize: maxBytes,
    onError: () => {
      throw tooLarge(maxBytes);
    },
  });
  return function limitBodyMiddleware(c, next) {
    const { headers } = c.env.incoming;
    if (headers["transfer-encoding"] !== undefined) return counted(c, next);
    if (Number(headers["content-length"] ?? 0) > maxBytes) throw tooLarge(maxBytes);
    return next();
  };
}

/** A JSON body: what it says and, for idempotency, the digest of its bytes. */
export interface JsonBody<T> {
  readonly value: T;
  /** SHA-256, hexadecimal. */
  readonly digest: string;
  /** Length of the text in UTF-8. */
  readonly sizeBytes: number;
}

const BYTE_ORDER_MARK = "\uFEFF";

/**
 * Reads a body as text, without its byte order mark.
 *
 * @throws UnreadableBodyError `E_ARGUMENT`, 400, for bytes that are not UTF-8: decoding would replace them and keep no trace.
 */
export async function readText({ req }: Context): Promise<string> {
  const bytes = Buffer.from(await req.arrayBuffer());
  if (!isUtf8(bytes)) throw new UnreadableBodyError("Expected a body in UTF-8, got other bytes. Encode the text as UTF-8");
  const text = bytes.toString("utf8");
  return text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text;
}

/** Characters above which reading, parsing and hashing each take long enough to let others in between. */
const LONG_TEXT = 100_000;

/**
 * Reads and validates a JSON body.
 *
 * @throws ArgumentError `E_ARGUMENT` for a body that is not JSON or does not fit `schema`; errors of {@link readText}.
 */
export async function readJson<S extends z.ZodType>(c: ServiceRequest, schema: S): Promise<JsonBody<z.output<S>>> {
  const text = await readText(c);
  if (text.length > LONG_TEXT) await setImmediate();
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    const got = text === "" ? "an empty body" : cause instanceof Error ? cause.message : "something else";
    throw new ArgumentError(`Expected a JSON body, got ${got}`, { cause });
  }
  if (text.length > LONG_TEXT) await setImmediate();
  return { value: validate(schema, parsed), digest: createHash("sha256").update(text).digest("hex"), sizeBytes: Buffer.byteLength(text) };
}

/** Reads and validates the query. A name that comes twice counts once, as the last. */
export function readQuery<S extends z.ZodType>(c: ServiceRequest, schema: S): z.output<S> {
  return validate(schema, c.req.query());
}
