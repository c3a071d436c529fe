/** Errors of chat requests, and their conversion to responses. */
import { BodyError } from "../../../dialects/index.ts";
import { WhetstoneError } from "../../../base/errors.ts";
import type { ErrorBody } from "../../../base/schema/error.ts";
import type { ServiceLogger } from "../../common/logger.ts";
import { requestField, type RequestScope } from "../../observability/observer.ts";
import {
  codeOfFailure,
  isClientGone,
  STATUSES,
  statusForCode,
  toErrorBody,
  UnreadableBodyError,
  type ErrorBodyFields,
  type ErrorStatus,
} from "../../http/errors.ts";

export { BodyError };

/** Error of requests that are still running when the service shuts down. */
export class ShutdownError extends WhetstoneError {
  readonly code = "E_OVERLOADED";

  constructor() {
    super("The service is shutting down; send the request again once it is back", { retryable: true });
  }
}

/** Error for a finished text that violates its schema, if the grammar could not enforce the whole schema. */
export class OutputError extends WhetstoneError {
  readonly code = "E_OUTPUT";
  /** The whole generated text. */
  readonly text: string;

  constructor(message: string, text: string) {
    super(message);
    this.text = text;
  }
}

/** Response to an error of a chat request. */
export interface ChatErrorAnswer {
  readonly status: ErrorStatus;
  readonly body: ErrorBody;
  /** Whether the error is a failure of the service, which must be logged because the body has no details. */
  readonly isInternal: boolean;
}

function answer(status: ErrorStatus, fields: ErrorBodyFields): ChatErrorAnswer {
  return { status, isInternal: false, body: toErrorBody(status, fields) };
}

/** Error `type` for a malformed body, as opposed to a field that fails a check against the model. */
const BODY_TYPE = "Bad Request";

/** Status by error code; an invalid field is a 400, as in other servers. Codes with undefined are answered with 500, without the message. */
const CHAT_STATUSES = {
  ...STATUSES,
  E_ARGUMENT: 400,
  E_DATA: 400,
  E_UNSUPPORTED: 400,
  E_CONFIG: undefined,
  E_SHAPE: undefined,
  E_PREFLIGHT: undefined,
} as const;

/** Returns the status and body for any failure of a chat request. Failures of the service become a 500 without details. */
export function toChatError(error: unknown): ChatErrorAnswer {
  // Only functions that walk the body recurse to the depth of its data: validation, the template, serialization.
  if (error instanceof RangeError && error.message.includes("call stack"))
    return answer(400, { message: "The body is nested too deeply", code: "E_ARGUMENT", type: BODY_TYPE });
  if (isClientGone(error)) return answer(499, { message: "The client closed the request", code: "E_ABORTED" });
  if (WhetstoneError.isInstance(error)) {
    const { message, param, code } = error;
    const isBodyError = error instanceof BodyError || error instanceof UnreadableBodyError;
    const status = error instanceof ShutdownError ? 503 : statusForCode(CHAT_STATUSES, code);
    if (status !== undefined) {
      // A chat request names its base model, or a model trained on it, in `model`.
      const field = code === "E_BASE_MODEL" ? "model" : param;
      const response = answer(status, { message, param: field, code, ...(isBodyError ? { type: BODY_TYPE } : {}) });
      if (error instanceof OutputError) response.body.error.failed_generation = error.text;
      return response;
    }
  }
  return { ...answer(500, { message: "Internal server error", code: codeOfFailure(error) }), isInternal: true };
}

/** Returns the response to a failure, see {@link toChatError}, and logs the error if the body omits its details. */
export function explainFailure(error: unknown, scope: RequestScope, logger: ServiceLogger | undefined): ChatErrorAnswer {
  const response = toChatError(error);
  if (response.isInternal) {
    const { message, cause } = error instanceof Error ? error : { message: String(error), cause: undefined };
    logger?.error("A chat completion failed", {
      ...requestField(scope),
      error: message,
      ...(cause instanceof Error ? { cause: cause.message } : {}),
    });
  }
  return response;
}
