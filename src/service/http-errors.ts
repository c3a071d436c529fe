import { isAbort, WhetstoneError, type ErrorCode } from "../errors.ts";
import type { ErrorBody } from "../schema/index.ts";
import type { ServiceLogger } from "./logger.ts";
import { traceOf } from "./error-text.ts";

type Status = 400 | 401 | 404 | 405 | 409 | 413 | 422 | 429 | 499 | 500 | 503;

const TYPES: Readonly<Record<Status, string>> = {
  400: "BadRequestError",
  401: "AuthenticationError",
  404: "NotFoundError",
  405: "MethodNotAllowedError",
  409: "ConflictError",
  413: "RequestTooLargeError",
  422: "ValidationError",
  429: "TooManyRequestsError",
  499: "ClientClosedRequest",
  500: "InternalServerError",
  503: "ServiceUnavailableError",
};

/** What the caller can mend is 422; what the caller cannot is not in this table and becomes 500. */
const STATUSES: Partial<Readonly<Record<ErrorCode, Status>>> = {
  E_ARGUMENT: 422,
  E_CONFIG: 422,
  E_SHAPE: 422,
  E_DATA: 422,
  E_PREFLIGHT: 422,
  E_UNSUPPORTED: 422,
  E_NOT_FOUND: 404,
  E_CONFLICT: 409,
  E_TOO_LARGE: 413,
  E_OVERLOADED: 429,
  E_DATA_CORRUPTED: 500,
  E_ENGINE_MISSING: 503,
};

/** The chat routes: validation is 400 there and the code is the status, as their clients expect. */
export function isChatPath(path: string): boolean {
  return path.startsWith("/v1/chat/");
}

/** One answer in the one error shape. */
export function errorResponse(
  status: Status,
  {
    message,
    param = null,
    code,
    path,
    headers = {},
  }: {
    readonly message: string;
    readonly param?: string | null | undefined;
    readonly code: string;
    readonly path: string;
    readonly headers?: Readonly<Record<string, string>> | undefined;
  },
): Response {
  const body: ErrorBody = { error: { message, type: TYPES[status], param, code: isChatPath(path) ? status : code } };
  return Response.json(body, { status, headers });
}

/** The answer to anything a route threw. What is nobody's fault but ours is logged and told without particulars. */
export function toErrorResponse(error: unknown, { path, logger }: { readonly path: string; readonly logger: ServiceLogger }): Response {
  if (isAbort(error)) return errorResponse(499, { message: "The client closed the request", code: "E_ABORTED", path });
  if (WhetstoneError.isInstance(error)) {
    const status = STATUSES[error.code];
    if (status !== undefined) {
      return errorResponse(status === 422 && isChatPath(path) ? 400 : status, {
        message: error.message,
        param: error.param,
        code: error.code,
        path,
        headers: status === 429 ? { "Retry-After": "1" } : {},
      });
    }
  }
  logger.error("A request failed", { path, error: traceOf(error) });
  return errorResponse(500, { message: "Internal server error; the service's log has the particulars", code: "E_INTERNAL", path });
}
