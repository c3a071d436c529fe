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

/**
 * Details of the error for `thread`, the field with which Anthropic's client refers to an earlier conversation. They cause its tool runner
 * to send whole conversations.
 */
const THREADS_UNSUPPORTED = { error_code: "thread_unsupported_request", unsupported: ["thread"] };

/**
 * Converts an error body of the service. Members that the Messages API does not have are kept as extensions.
 *
 * @param requestId - Identifier of the request. @default none
 */
export function toMessagesError({ error }: ErrorBody, requestId?: string): MessagesError {
  const { message, param, code: status, error_code, failed_generation: generatedText } = error;
  const type = TYPES[status] ?? (status >= 500 ? "api_error" : "invalid_request_error");
  const generation = generatedText === undefined ? {} : { failed_generation: generatedText };
  const details = param === "thread" && error_code === "E_UNSUPPORTED" ? { details: THREADS_UNSUPPORTED } : {};
  return {
    type: "error",
    error: { type, message, param, code: status, error_code, ...generation, ...details },
    ...(requestId === undefined ? {} : { request_id: requestId }),
  };
}
