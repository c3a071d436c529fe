import { isRetryableStatus, readRetryAfter } from "../client/retry.ts";
import { WhetstoneError } from "../errors.ts";
import type { RolloutException } from "../schema/index.ts";

/** Maximum number of nested causes to inspect, e.g. a client's error in a framework's error in a tool's error. */
const MAX_DEPTH = 6;

/** Codes of Node and undici for failed connections. */
const CONNECTION_CODE = /^(?:ECONNRESET|ECONNREFUSED|ECONNABORTED|EPIPE|ETIMEDOUT|EAI_AGAIN|UND_ERR_(?:SOCKET|.*_TIMEOUT))$/;

/** Thrown values by recorded exception; the exceptions themselves are plain data. */
const causes = new WeakMap<RolloutException, unknown>();

/** Converts a thrown value to plain data; {@link causeOf} returns the value again. */
export function toException(error: unknown): RolloutException {
  const exception: RolloutException =
    error instanceof Error
      ? { type: error.name, message: error.message, traceback: error.stack ?? "" }
      : { type: typeof error, message: String(error), traceback: "" };
  causes.set(exception, error);
  return exception;
}

/** Returns the thrown value of a recorded exception. */
export function causeOf(exception: RolloutException): unknown {
  return causes.get(exception);
}

/**
 * Whether the same rollout may succeed if repeated: the attempt timed out, an error of this package is `retryable`, or an error of another
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
  for (const each of chain(error)) {
    if (WhetstoneError.isInstance(each)) return each.retryable;
    if (each["isRetryable"] === true) return true;
    const status = statusOf(each);
    if (status !== null) return isRetryableStatus(status);
    if (typeof each["code"] === "string" && CONNECTION_CODE.test(each["code"])) return true;
  }
  return false;
}

/**
 * Finds a 429 response in an error of any client and its causes.
 *
 * @returns `retryAfterMs`: wait that the service requested, null if unspecified. Null for any other error.
 */
export function rateLimitOf(error: unknown): { readonly retryAfterMs: number | null } | null {
  for (const each of chain(error)) {
    const isOverloaded = WhetstoneError.isInstance(each) && each.code === "E_OVERLOADED";
    if (isOverloaded || statusOf(each) === 429) return { retryAfterMs: retryAfterOf(each) };
  }
  return null;
}

type Fields = Readonly<Record<string, unknown>>;

/** Yields the error, then its causes, outermost first. */
function* chain(error: unknown): Generator<Fields> {
  let each = error;
  for (let depth = 0; depth < MAX_DEPTH && isFields(each); depth++) {
    yield each;
    each = each["cause"] ?? each["lastError"];
  }
}

/** Returns the HTTP status: `status` of most clients, `statusCode` of others, or `response.status`. */
function statusOf(error: Fields): number | null {
  const response = error["response"];
  for (const value of [error["status"], error["statusCode"], isFields(response) ? response["status"] : null]) {
    if (typeof value === "number") return value;
  }
  return null;
}

function retryAfterOf(error: Fields): number | null {
  if (typeof error["retryAfterMs"] === "number") return error["retryAfterMs"];
  const response = error["response"];
  for (const headers of [error["headers"], error["responseHeaders"], isFields(response) ? response["headers"] : null]) {
    const milliseconds = Number(headerOf(headers, "retry-after-ms") ?? NaN);
    if (milliseconds >= 0) return milliseconds;
    const announced = readRetryAfter(headerOf(headers, "retry-after"));
    if (announced !== null) return announced;
  }
  return null;
}

function headerOf(headers: unknown, name: string): string | undefined {
  if (!isFields(headers)) return undefined;
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null;
}
