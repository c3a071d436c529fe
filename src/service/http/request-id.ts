/** Identifiers of requests, which answers and log lines carry. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { randomHex } from "../../base/util/random-hex.ts";

/** Identifiers that the service accepts from clients: 1 to 128 visible ASCII characters, without spaces. */
const VALID = /^[\x21-\x7e]{1,128}$/u;

/** Paths of the Messages API. Its clients read the identifier from `request-id`. */
const MESSAGES = /^(?:\/sessions\/[^/?]+)?\/v1\/messages(?:[/?]|$)/u;

const ids = new WeakMap<IncomingMessage, string>();

/** Returns a new identifier: 32 hexadecimal digits. */
export function newRequestId(): string {
  return randomHex(32);
}

/**
 * Returns the identifier of a request, the same for each call: the header `x-request-id` if it has 1 to 128 visible ASCII characters, else a
 * new identifier.
 */
export function requestIdOf(request: IncomingMessage): string {
  let id = ids.get(request);
  if (id === undefined) {
    const given = request.headers["x-request-id"];
    id = typeof given === "string" && VALID.test(given) ? given : newRequestId();
    ids.set(request, id);
  }
  return id;
}

/** Adds the identifier of a request to the headers of its answer. */
export function sendRequestId(request: IncomingMessage, response: ServerResponse): void {
  const id = requestIdOf(request);
  response.setHeader("x-request-id", id);
  if (MESSAGES.test(request.url ?? "")) response.setHeader("request-id", id);
}
