/** Failures of rollouts as data: conversion of thrown values, detection of rate limits, and one-line descriptions. */
import { readRetryAfter } from "../client/retry.ts";
import { WhetstoneError } from "../../base/errors.ts";
import type { RolloutException } from "../../base/schema/index.ts";
import { userLocation } from "../../base/util/user-location.ts";
import { chainOf, isFields, httpStatusOf, type ErrorFields } from "../../base/util/retryable.ts";

/** Thrown values by the exception that records them; exceptions themselves are plain data for files. */
const thrownValues = new WeakMap<RolloutException, unknown>();

/** Converts a thrown value to plain data; {@link causeOf} returns the value again. */
export function toException(error: unknown): RolloutException {
  const exception: RolloutException =
    error instanceof Error
      ? { type: error.name, message: error.message, traceback: error.stack ?? "" }
      : { type: typeof error, message: String(error), traceback: "" };
  thrownValues.set(exception, error);
  return exception;
}

/** Returns the thrown value that {@link toException} converted; undefined for another exception, e.g. one from a file. */
export function causeOf(exception: RolloutException): unknown {
  return thrownValues.get(exception);
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

/** Returns the wait that an error of any client carries, as a member or in the headers of its response; null without one. */
function retryAfterOf(error: ErrorFields): number | null {
  if (typeof error["retryAfterMs"] === "number") return error["retryAfterMs"];
  const response = error["response"];
  const responseHeaders = isFields(response) ? response["headers"] : null;
  // Clients name the headers of a response differently.
  for (const headers of [error["headers"], error["responseHeaders"], responseHeaders]) {
    const milliseconds = Number(headerOf(headers, "retry-after-ms") ?? NaN);
    if (milliseconds >= 0) return milliseconds;
    const retryAfterMs = readRetryAfter(headerOf(headers, "retry-after"));
    if (retryAfterMs !== null) return retryAfterMs;
  }
  return null;
}

/** Returns a header from a `Headers` object or a plain object with lowercase names. */
function headerOf(headers: unknown, name: string): string | undefined {
  if (!isFields(headers)) return undefined;
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

/** Describes a failure in one line: type, message, and the position in the user's code, if known. */
export function describeException({ type, message, traceback }: RolloutException): string {
  const location = userLocation(traceback);
  return `${type}: ${message}${location === null ? "" : ` (${location})`}`;
}
