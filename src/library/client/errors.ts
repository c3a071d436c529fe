/** Errors of requests to the service, and the parser of error bodies. */
import { WhetstoneError, type WhetstoneErrorOptions } from "../../base/errors.ts";
import { isRecord, parseJson } from "../../base/util/values.ts";

/** Constructor options of {@link HttpError}. */
export interface HttpErrorOptions extends WhetstoneErrorOptions {
  /** HTTP status; null for an error inside a stream that had started with 200. */
  readonly status: number | null;
  /** Error type in the body, e.g. `NotFoundError`. @default null */
  readonly type?: string | null | undefined;
  /** Value of `x-request-id`. @default null */
  readonly requestId?: string | null | undefined;
  /** Wait requested by the service, in milliseconds. @default null */
  readonly retryAfterMs?: number | null | undefined;
  /** Error code in the body. @default null */
  readonly serviceCode?: string | number | null | undefined;
  /** The service's own message, without the request. @default null */
  readonly reason?: string | null | undefined;
}

/**
 * An error response of the service. `retryable` for 408, 429 and 5xx other than 501, 505 and 507; retried inside the client where that is
 * safe.
 *
 * @example
 * ```ts
 * try {
 *   await model.checkpoint(99);
 * } catch (error) {
 *   if (error instanceof HttpError && error.status === 404) console.log(error.requestId);
 * }
 * ```
 */
export class HttpError extends WhetstoneError {
  readonly code = "E_HTTP";
  /** HTTP status; null for an error inside a stream that had started with 200. */
  readonly status: number | null;
  /** Error type in the body, e.g. `NotFoundError`; null if absent. */
  readonly type: string | null;
  /** Value of `x-request-id`, to quote in a bug report; null if absent. */
  readonly requestId: string | null;
  /** Wait requested by the service (`Retry-After`), in milliseconds; null if absent. */
  readonly retryAfterMs: number | null;
  /** Error code in the body: `error_code`, such as `E_NOT_FOUND`; for other servers `code`, a string or a number. Null if absent. */
  readonly serviceCode: string | number | null;
  /** The service's own message, without the request; null if the body has none. */
  readonly reason: string | null;

  /**
   * Creates the error of a response.
   *
   * @param message - Text of the error: request, status and the service's reason.
   * @param options - Status and further facts of the response.
   * @example
   * ```ts
   * // In a policy of one's own: rollouts are retried after this error.
   * throw new HttpError("The backend is overloaded", { status: 503, retryable: true });
   * ```
   */
  constructor(message: string, options: HttpErrorOptions) {
    super(message, options);
    this.status = options.status;
    this.type = options.type ?? null;
    this.requestId = options.requestId ?? null;
    this.retryAfterMs = options.retryAfterMs ?? null;
    this.serviceCode = options.serviceCode ?? null;
    this.reason = options.reason ?? null;
  }

  /** Returns the fields of the response besides code and message; safe for files and HTTP responses. */
  override toJSON(): ReturnType<WhetstoneError["toJSON"]> & Pick<HttpError, "status" | "type" | "requestId" | "serviceCode"> {
    return { ...super.toJSON(), status: this.status, type: this.type, requestId: this.requestId, serviceCode: this.serviceCode };
  }
}

/**
 * No complete response: refused, reset, timed out, or a stream cut before its end. `retryable`; retried inside the client where that is
 * safe.
 */
export class ConnectionError extends WhetstoneError {
  readonly code = "E_CONNECTION";
  /** Whether the request certainly never reached the service, so that repeating it cannot repeat its effect. */
  readonly isBeforeSend: boolean;

  /**
   * Creates the error of a request without a complete response.
   *
   * @param message - Text of the error: request and cause.
   * @param options - `isBeforeSend`, cause, and `retryable` (true by default).
   * @example
   * ```ts
   * throw new ConnectionError("The backend refused the connection", { isBeforeSend: true });
   * ```
   */
  constructor(message: string, options: WhetstoneErrorOptions & { readonly isBeforeSend?: boolean | undefined } = {}) {
    super(message, { retryable: true, ...options });
    this.isBeforeSend = options.isBeforeSend ?? false;
  }
}

/** A 2xx response that does not match the interface's schema. Never retried. */
export class ProtocolError extends WhetstoneError {
  readonly code = "E_PROTOCOL";
}

/** Fields of an error body in any of the shapes that {@link readErrorBody} parses; null for a field that the body lacks. */
export interface ErrorFacts {
  readonly message: string | null;
  readonly type: string | null;
  readonly param: string | null;
  readonly serviceCode: string | number | null;
}

/**
 * Parses an error body: `{"error": {…}}`, `{"error": "text"}`, `{"detail": "text"}`, `{"detail": [{"loc": […], "msg": "…"}]}`, or plain
 * text.
 */
export function readErrorBody(text: string): ErrorFacts {
  const noFacts: ErrorFacts = { message: null, type: null, param: null, serviceCode: null };
  const body = parseJson(text);
  if (body === undefined) {
    // Plain text, such as an HTML page from a proxy: its first 200 characters are better than no hint.
    const line = text.trim().slice(0, 200);
    return line === "" ? noFacts : { ...noFacts, message: line };
  }
  if (!isRecord(body)) return noFacts;
  const { error, detail } = body;
  if (typeof error === "string") return { ...noFacts, message: error };
  if (isRecord(error)) {
    const { message, type, param, error_code: errorCode, code } = error;
    return {
      message: stringOrNull(message),
      type: stringOrNull(type),
      param: stringOrNull(param),
      serviceCode: stringOrNull(errorCode) ?? (typeof code === "number" ? code : stringOrNull(code)),
    };
  }
  if (typeof detail === "string") return { ...noFacts, message: detail };
  if (Array.isArray(detail)) {
    const issues = detail.filter(isRecord);
    const lines = issues.map(({ loc, msg }) => `${fieldPath(loc)}: ${stringOrNull(msg) ?? "invalid"}`);
    const firstLocation = issues[0]?.["loc"];
    return { ...noFacts, message: lines.join("; ") || null, param: firstLocation === undefined ? null : fieldPath(firstLocation) };
  }
  return noFacts;
}

/** Returns the path of a field from the `loc` of FastAPI, such as `["body", "config", "seed"]`, without `body`. */
function fieldPath(loc: unknown): string {
  return Array.isArray(loc) ? loc.filter((part) => part !== "body").join(".") : "";
}

function stringOrNull(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}
