/** Error responses: status, type and body by error code. `toErrorResponse` answers the errors of all routes besides chat completions. */
import { ArgumentError, isAbort, RateLimitError, WhetstoneError, type ErrorCode } from "../../base/errors.ts";
import type { ErrorBody } from "../../base/schema/index.ts";
import { traceOf, type ServiceLogger } from "../common/logger.ts";
import { isNoSpace } from "../../base/util/no-space.ts";
import { messageOf } from "../../base/util/values.ts";

/** `type` of an error response, and its description in the OpenAPI document, by status. */
export const ERRORS = {
  400: { type: "BadRequestError", description: "The request is malformed, or a field of a chat completion is invalid." },
  401: { type: "AuthenticationError", description: "The key is missing, or not the one of this service." },
  403: {
    type: "PermissionDeniedError",
    description:
      "The key does not permit the request: it lacks a scope, belongs to a session or another entity, or its entity is at its storage quota.",
  },
  404: { type: "NotFoundError", description: "The addressed object does not exist." },
  405: { type: "MethodNotAllowedError", description: "The path does not support the method." },
  408: { type: "RequestTimeoutError", description: "The request was not received in time." },
  409: { type: "ConflictError", description: "The request conflicts with the present state." },
  413: { type: "RequestTooLargeError", description: "The body is over its size limit." },
  417: { type: "ExpectationFailedError", description: "The header `Expect` is not supported." },
  422: {
    type: "ValidationError",
    description: "A parameter or a field is invalid, and `param` names it; or the model or its output cannot be used.",
  },
  429: {
    type: "TooManyRequestsError",
    description: "The service has no room for the request now, or the key or its entity is at a limit.",
  },
  431: { type: "RequestTooLargeError", description: "The headers are over their size limit." },
  499: { type: "ClientClosedRequest", description: "The client closed the request." },
  500: { type: "InternalServerError", description: "The service failed; its log has the reason." },
  503: { type: "ServiceUnavailableError", description: "The service cannot answer now." },
  507: { type: "InsufficientStorageError", description: "The disk of the service is full." },
} as const;

/** HTTP statuses of error responses. */
export type ErrorStatus = keyof typeof ERRORS;

/** Error codes in responses: codes of error classes, and codes that only the service sends. */
type WireCode = ErrorCode | "E_UNAUTHORIZED" | "E_METHOD" | "E_ABORTED" | "E_REQUEST_TIMEOUT";

/** Status by error code. Messages of these errors are sent to the client; any other error is a 500 with a generic message. */
export const STATUSES = {
  E_ARGUMENT: 422,
  E_CONFIG: 422,
  E_SHAPE: 422,
  E_DATA: 422,
  E_PREFLIGHT: 422,
  E_UNSUPPORTED: 422,
  E_BASE_MODEL: 422,
  E_OUTPUT: 422,
  E_NOT_FOUND: 404,
  E_CONFLICT: 409,
  E_FORBIDDEN: 403,
  E_TOO_LARGE: 413,
  E_OVERLOADED: 429,
  E_RATE_LIMIT: 429,
  E_QUOTA: 403,
  E_DATA_CORRUPTED: 500,
  E_NO_SPACE: 507,
  E_ENGINE_MISSING: 503,
  E_UNAVAILABLE: 503,
  E_NON_FINITE: 422,
} as const satisfies Partial<Record<ErrorCode, ErrorStatus>>;

/** Returns the status of an error code; undefined for a code with a message that is not sent. */
export function statusForCode(
  statuses: { readonly [Code in ErrorCode]?: ErrorStatus | undefined },
  code: ErrorCode,
): ErrorStatus | undefined {
  return statuses[code];
}

/** Error for a body that is not valid UTF-8. Answered with 400 on every route. */
export class UnreadableBodyError extends ArgumentError {}

/** Whether the error is an abort, or reports that the client closed the connection before its request body was complete. */
export function isClientGone(error: unknown): boolean {
  return isAbort(error) || (error instanceof Error && error.message === "aborted" && "code" in error && error.code === "ECONNRESET");
}

/** Paths of the API dialects of chat, and of requests about tokens. */
const CHAT_PATH = /^\/(?:v1\/(?:chat|responses|messages|completions)|inference|tokenize|detokenize)(?:\/|$)/u;

/** Whether the path belongs to an API dialect of chat, where existing clients expect validation errors as 400 instead of 422. */
export function isChatPath(path: string): boolean {
  return CHAT_PATH.test(path);
}

/** Paths of files, fine-tuning jobs and fine-tuned models. */
const FINE_TUNING_PATH = /^\/v1\/(?:files|fine_tuning|models)(?:\/|$)/u;

/**
 * Returns the status of an error of a request. Clients of the OpenAI API expect 400 for invalid fields; for fine-tuning also for conflicts
 * with the present state, because they repeat a request that is answered with 409.
 */
function statusAt(path: string, status: ErrorStatus, code: ErrorCode): ErrorStatus {
  // A base model that cannot be loaded is not an invalid field.
  const isInvalidField = status === 422 && code !== "E_BASE_MODEL";
  if (FINE_TUNING_PATH.test(path)) return isInvalidField || status === 409 ? 400 : status;
  return isInvalidField && isChatPath(path) ? 400 : status;
}

/** Fields of an error body. */
export interface ErrorBodyFields {
  readonly message: string;
  /** Name of the offending field. @default null */
  readonly param?: string | null | undefined;
  readonly code: WireCode;
  /** Error type. @default the type of the status */
  readonly type?: string | undefined;
}

/** Returns the error body used by all routes: `code` is the HTTP status, `error_code` the permanent error code. */
export function toErrorBody(status: ErrorStatus, { message, param = null, code, type = ERRORS[status].type }: ErrorBodyFields): ErrorBody {
  return { error: { message, type, param, code: status, error_code: code } };
}

/** Returns a response with the error body. */
export function errorResponse(
  status: ErrorStatus,
  { headers = {}, ...fields }: ErrorBodyFields & { readonly headers?: Readonly<Record<string, string>> | undefined },
): Response {
  return Response.json(toErrorBody(status, fields), { status, headers });
}

/** Seconds after which a client should repeat a request, unless the error has another time. */
const RETRY_AFTER_SECONDS = 1;

/** Returns the headers with the time after which a request may be sent again. Clients that know `retry-after-ms` prefer it. */
export function retryHeaders(error: unknown): Record<string, string> {
  if (!(error instanceof RateLimitError)) return { "retry-after": String(RETRY_AFTER_SECONDS) };
  const { retryAfterMs } = error;
  return { "retry-after": String(Math.ceil(retryAfterMs / 1000)), "retry-after-ms": String(retryAfterMs) };
}

/**
 * Returns the response to an error thrown by a route. Internal failures are logged and answered with a generic message.
 *
 * @param options - Path and identifier of the request, for the log.
 */
export function toErrorResponse(
  error: unknown,
  { path, request, logger }: { readonly path: string; readonly request: string; readonly logger: ServiceLogger },
): Response {
  if (isClientGone(error)) return errorResponse(499, { message: "The client closed the request", code: "E_ABORTED" });
  if (WhetstoneError.isInstance(error)) {
    const { message, param, code } = error;
    const status = error instanceof UnreadableBodyError ? 400 : statusForCode(STATUSES, code);
    if (status !== undefined) {
      return errorResponse(statusAt(path, status, code), {
        message,
        param,
        code,
        headers: error.retryable || status === 429 ? retryHeaders(error) : {},
      });
    }
  }
  if (isNoSpace(error)) {
    // The system's message contains paths, so it is only logged.
    logger.warn("A request found no disk space", { request, path, error: messageOf(error) });
    const message =
      "The service's disk is full: nothing of the request was kept. Delete checkpoints, artifacts or jobs that are not needed, or make room on the file system of the data directory, and send it again";
    return errorResponse(507, { message, code: "E_NO_SPACE" });
  }
  logger.error("A request failed", { request, path, error: traceOf(error) });
  return errorResponse(500, { message: "Internal server error; the service's log has the particulars", code: codeOfFailure(error) });
}

/** Returns the code of a failure that is answered without details. */
export function codeOfFailure(error: unknown): "E_ENGINE" | "E_INTERNAL" {
  return WhetstoneError.isInstance(error) && error.code === "E_ENGINE" ? "E_ENGINE" : "E_INTERNAL";
}
