/** Identifiers of requests, which answers and log lines carry. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { randomHex } from "../../base/util/random-hex.ts";
import { getOrInsert } from "../../base/util/values.ts";

/** Identifiers that the service accepts from clients: 1 to 128 visible ASCII characters, without spaces. */
const VALID_ID = /^[\x21-\x7e]{1,128}$/u;

/** URLs of the Messages API, also with a session in the path. Its clients read the identifier from `request-id`. */
const MESSAGES_URL = /^(?:\/sessions\/[^/?]+)?\/v1\/messages(?:[/?]|$)/u;

/** Identifiers of requests, once {@link requestIdOf} has determined them. */
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
  return getOrInsert(ids, request, () => {
    const header = request.headers["x-request-id"];
    return typeof header === "string" && VALID_ID.test(header) ? header : newRequestId();
  });
}

/** Adds the identifier of a request to the headers of its answer. */
export function sendRequestId(request: IncomingMessage, response: ServerResponse): void {
  const id = requestIdOf(request);
  response.setHeader("x-request-id", id);
  if (MESSAGES_URL.test(request.url ?? "")) response.setHeader("request-id", id);
}
