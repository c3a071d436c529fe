/** Serialization of errors from a work thread to the serving thread. Errors of the request keep their code and parameter. */
import { WhetstoneError, type ErrorCode } from "../../errors.ts";
import { BodyError } from "../chat/errors.ts";
import { UnreadableBodyError } from "../http-errors.ts";

/** Plain-data form of a {@link WhetstoneError}. */
export interface Refusal {
  readonly name: string;
  readonly code: ErrorCode;
  readonly message: string;
  readonly param: string | null;
  readonly retryable: boolean;
}

/** Plain-data form of an operating system error, such as a full disk. */
export interface SystemFailure {
  readonly message: string;
  /** Error code, such as `ENOSPC`. */
  readonly code: string;
}

/** Result of a task: its value, or its error. */
export type Outcome<T> = { readonly value: T } | { readonly refusal: Refusal } | { readonly failure: SystemFailure };

/** Error thrown by a work thread, restored with its original code. */
class RestoredError extends WhetstoneError {
  readonly code: ErrorCode;

  constructor({ name, code, message, param, retryable }: Refusal) {
    super(message, { param, retryable });
    this.name = name;
    this.code = code;
  }
}

/** Converts an error to plain data; returns null for an internal error. */
export function describeFailure(error: unknown): { readonly refusal: Refusal } | { readonly failure: SystemFailure } | null {
  if (WhetstoneError.isInstance(error)) {
    const { name, code, message, param, retryable } = error;
    return code === "E_INTERNAL" ? null : { refusal: { name, code, message, param, retryable } };
  }
  const { code, message } = error as { readonly code?: unknown; readonly message?: unknown };
  return typeof code === "string" && typeof message === "string" ? { failure: { message, code } } : null;
}

function fromRefusal(refusal: Refusal): WhetstoneError {
  const { name, message, param } = refusal;
  if (name === BodyError.name) return new BodyError(message, { param });
  return name === UnreadableBodyError.name ? new UnreadableBodyError(message, { param }) : new RestoredError(refusal);
}

/** Returns the value of an outcome. @throws the error of the task, with its code. */
export function valueOf<T>(outcome: Outcome<T>): T {
  if ("refusal" in outcome) throw fromRefusal(outcome.refusal);
  if ("failure" in outcome) throw Object.assign(new Error(outcome.failure.message), { code: outcome.failure.code });
  return outcome.value;
}
