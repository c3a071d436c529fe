import { readRetryAfter } from "../client/retry.ts";
import { WhetstoneError } from "../../base/errors.ts";
import type { RolloutException } from "../../base/schema/index.ts";
import { userLocation } from "../../base/util/user-location.ts";
import { chainOf, isFields, httpStatusOf, type ErrorFields } from "../../base/util/retryable.ts";

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
 * Finds a 429 response in an error of any client and its causes.
 *
 * @returns `retryAfterMs`: wait that the service requested, null if unspecified. Null for any other error.
 */
export function rateLimitOf(error: unknown): { readonly retryAfterMs: number | null } | null {
  for (const each of chainOf(error)) {
    const isOverloaded = WhetstoneError.isInstance(each) && each.code === "E_OVERLOADED";
    if (isOverloaded || httpStatusOf(each) === 429) return { retryAfterMs: retryAfterOf(each) };
  }
  return null;
}

function retryAfterOf(error: ErrorFields): number | null {
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

/** Describes a failure in one line: type, message, and the position in the user's code, if known. */
export function describeException({ type, message, traceback }: RolloutException): string {
  const at = userLocation(traceback);
  return `${type}: ${message}${at === null ? "" : ` (${at})`}`;
}
