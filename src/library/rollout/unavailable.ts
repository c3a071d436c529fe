/** Patience with an unavailable service, for runs and workers that continue when it is back. */
import { WhetstoneError } from "../../base/errors.ts";
import { isRetryable } from "../../base/util/retryable.ts";
import { ConnectionError, HttpError } from "../client/index.ts";
import type { RetryOptions } from "./options.ts";

/** Max attempts of one rollout while the service is unavailable: a few minutes, with up to 8 seconds between attempts. */
const UNAVAILABLE_ATTEMPTS = 40;

/** Whether an error means that the service is unavailable or busy, so that the same call may succeed later. */
export function isUnavailable(error: unknown): error is WhetstoneError {
  return WhetstoneError.isInstance(error) && error.retryable && (error instanceof ConnectionError || error instanceof HttpError);
}

/**
 * Returns the retries of a rollout: up to `retries` for transient errors, and some minutes while the service is unavailable.
 *
 * @param onUnavailable - Called with each error of an unavailable service.
 */
export function patientRetries(retries: number, onUnavailable: (error: WhetstoneError) => void = () => undefined): RetryOptions {
  return {
    limit: Math.max(retries, UNAVAILABLE_ATTEMPTS),
    when(error, attempt) {
      if (!isUnavailable(error)) return attempt < retries && isRetryable(error);
      onUnavailable(error);
      return true;
    },
  };
}
