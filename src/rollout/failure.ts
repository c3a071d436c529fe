import { isRetryableStatus, readRetryAfter } from "../client/retry.ts";
import { WhetstoneError } from "../errors.ts";
import type { RolloutException } from "../schema/index.ts";

/** How deep errors are nested at most: a client's error in a framework's error in a tool's error. */
const MAX_DEPTH = 6;

/** Node's and undici's codes for a connection that failed, whoever made it. */
const CONNECTION_CODE = /^(?:ECONNRESET|ECONNREFUSED|ECONNABORTED|EPIPE|ETIMEDOUT|EAI_AGAIN|UND_ERR_(?:SOCKET|.*_TIMEOUT))$/;

/** The thrown value behind a recorded exception, which is plain data. */
const causes = new WeakMap<RolloutException, unknown>();

/** A failure as data. */
export function toException(error: unknown): RolloutException {
  const exception: RolloutException =
    error instanceof Error
      ? { type: error.name, message: error.message, traceback: error.stack ?? "" }
      : { type: typeof error, message: String(error), traceback: "" };
  causes.set(exception, error);
  return exception;
}

/** What was thrown. */
export function causeOf(exception: RolloutException): unknown {
  return causes.get(exception);
}

/**
 * Whether the same rollout may succeed when it is played again: the attempt ran out of time, an error of this package says
 * `retryable`, or an error of another client has a status (408, 429, 5xx) or a connection code that passes by itself.
 *
 * Anything else is a mistake that would be repeated.
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
 * The 429 behind an error of any client; null if there is none.
 *
 * @returns `retryAfterMs`: what the service asked for, null if it did not say.
 */
export function rateLimitOf(error: unknown): { readonly retryAfterMs: number | null } | null {
  for (const each of chain(error)) {
    const isOverloaded = WhetstoneError.isInstance(each) && each.code === "E_OVERLOADED";
    if (isOverloaded || statusOf(each) === 429) return { retryAfterMs: retryAfterOf(each) };
  }
  return null;
}

type Fields = Readonly<Record<string, unknown>>;

/** The error, then what caused it, outermost first. */
function* chain(error: unknown): Generator<Fields> {
  let each = error;
  for (let depth = 0; depth < MAX_DEPTH && isFields(each); depth++) {
    yield each;
    each = each["cause"] ?? each["lastError"];
  }
}

/** `status` of most clients, `statusCode` of others, or that of a `response`. */
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
