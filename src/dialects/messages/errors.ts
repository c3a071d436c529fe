/** Errors in the format of the Messages API. */
import type { ErrorBody, MessagesError } from "../../base/schema/index.ts";

/** Error types by HTTP status; other statuses below 500 are `invalid_request_error`, above `api_error`. */
const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  503: "overloaded_error",
};

/** Details by which the tool runner of Anthropic's client recognizes that it has to send whole conversations. */
const NO_THREADS = { error_code: "thread_unsupported_request", unsupported: ["thread"] };

/**
 * Converts an error body of the service.
 *
 * @param requestId - Identifier of the request. @default none
 */
export function toMessagesError({ error }: ErrorBody, requestId?: string): MessagesError {
  const { message, param, code, error_code, failed_generation: text } = error;
  const type = TYPES[code] ?? (code >= 500 ? "api_error" : "invalid_request_error");
  const details = param === "thread" && error_code === "E_UNSUPPORTED" ? { details: NO_THREADS } : {};
  return {
    type: "error",
    error: { type, message, param, code, error_code, ...(text === undefined ? {} : { failed_generation: text }), ...details },
    ...(requestId === undefined ? {} : { request_id: requestId }),
  };
}
