import { ArgumentError, isAbort, WhetstoneError } from "../../errors.ts";
import type { ErrorBody } from "../../schema/error.ts";

/** A body that is not what the wire says: bad JSON, wrong media type, wrong field type, contradicting fields. */
export class BodyError extends ArgumentError {}

/** The service is going down; running requests end with this. */
export class ShutdownError extends WhetstoneError {
  readonly code = "E_OVERLOADED";

  constructor() {
    super("The service is shutting down; send the request again once it is back", { retryable: true });
  }
}

/** Seconds a client is asked to wait after a 429 or 503. */
export const RETRY_AFTER_SECONDS = 1;

/** An error as this route answers it. `isInternal` asks for a line in the log: the client is told nothing of it. */
export interface ChatErrorAnswer {
  readonly status: 400 | 404 | 409 | 413 | 429 | 499 | 500 | 503;
  readonly body: ErrorBody;
  readonly isInternal: boolean;
}

function answer(
  status: ChatErrorAnswer["status"],
  type: string,
  error: { readonly message: string; readonly param?: string | null },
): ChatErrorAnswer {
  return { status, isInternal: false, body: { error: { message: error.message, type, param: error.param ?? null, code: status } } };
}

/** The status and body for any failure of a chat request. What is not a caller's fault becomes a 500 without particulars. */
export function toChatError(error: unknown): ChatErrorAnswer {
  // Only what walks a body recurses as deep as its data: validation, the template, serialisation.
  if (error instanceof RangeError && error.message.includes("call stack"))
    return answer(400, "Bad Request", { message: "The body is nested too deeply" });
  if (isAbort(error)) return answer(499, "ClientClosedRequest", { message: "The client closed the request" });
  if (WhetstoneError.isInstance(error)) {
    if (error instanceof BodyError) return answer(400, "Bad Request", error);
    if (error instanceof ShutdownError) return answer(503, "ServiceUnavailableError", error);
    switch (error.code) {
      case "E_ARGUMENT":
      case "E_DATA":
      case "E_UNSUPPORTED":
        return answer(400, "BadRequestError", error);
      case "E_NOT_FOUND":
        return answer(404, "NotFoundError", error);
      case "E_CONFLICT":
        return answer(409, "ConflictError", error);
      case "E_TOO_LARGE":
        return answer(413, "RequestTooLargeError", error);
      case "E_OVERLOADED":
        return answer(429, "TooManyRequestsError", error);
      case "E_ENGINE_MISSING":
        return answer(503, "ServiceUnavailableError", error);
      default:
        break;
    }
  }
  return { ...answer(500, "InternalServerError", { message: "Internal server error" }), isInternal: true };
}
