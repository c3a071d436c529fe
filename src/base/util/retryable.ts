/** Decision whether a failed operation is worth a retry, for errors of this package and of other clients. */

import { WhetstoneError } from "../errors.ts";

/** Maximum number of nested causes to inspect, e.g. a client's error in a framework's error in a tool's error. */
const MAX_DEPTH = 6;

/** Codes of Node and undici for failed connections. */
const CONNECTION_CODE = /^(?:ECONNRESET|ECONNREFUSED|ECONNABORTED|EPIPE|ETIMEDOUT|EAI_AGAIN|UND_ERR_(?:SOCKET|.*_TIMEOUT))$/;

/** 5xx statuses that a retry cannot resolve: not implemented, HTTP version not supported, and insufficient storage (507). */
const LASTING_STATUSES: readonly number[] = [501, 505, 507];

/** Returns whether a status is worth a retry: 408, 429, and 5xx except {@link LASTING_STATUSES}. */
export function isRetryableStatus(status: number): boolean {
  return status === 408 || status === 429 || (status >= 500 && !LASTING_STATUSES.includes(status));
}

/**
 * Returns whether the same operation may succeed if repeated: it timed out, an error of this package is `retryable`, or an error of another
 * client has a transient status (408, 429, 5xx) or connection code.
 *
 * Any other error is expected to recur.
 *
 * @param error - Thrown value.
 * @returns True if a retry may succeed.
 */
export function isRetryable(error: unknown): boolean {
  if (error instanceof Error && error.name === "TimeoutError") return true;
  if (error instanceof Error && error.name === "AbortError") return false;
  for (const link of chainOf(error)) {
    if (WhetstoneError.isInstance(link)) return link.retryable;
    // Property of the AI SDK's errors.
    if (link["isRetryable"] === true) return true;
    const status = httpStatusOf(link);
    if (status !== null) return isRetryableStatus(status);
    const code = link["code"];
    if (typeof code === "string" && CONNECTION_CODE.test(code)) return true;
  }
  return false;
}

/** Thrown value with properties. */
export type ErrorFields = Readonly<Record<string, unknown>>;

/** Yields the error, then its causes, outermost first. */
export function* chainOf(error: unknown): Generator<ErrorFields> {
  let link = error;
  for (let depth = 0; depth < MAX_DEPTH && isFields(link); depth++) {
    yield link;
    // `lastError` is the cause of the AI SDK's error after its last retry.
    link = link["cause"] ?? link["lastError"];
  }
}

/** Returns the HTTP status: `status` of most clients, `statusCode` of others, or `response.status`. */
export function httpStatusOf(error: ErrorFields): number | null {
  const response = error["response"];
  for (const value of [error["status"], error["statusCode"], isFields(response) ? response["status"] : null]) {
    if (typeof value === "number") return value;
  }
  return null;
}

/** Whether a thrown value has properties. */
export function isFields(value: unknown): value is ErrorFields {
  return typeof value === "object" && value !== null;
}
