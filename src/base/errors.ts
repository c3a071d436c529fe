/**
 * Error classes of the package. Three rules apply to all of them:
 *
 * 1. Every failure that can reach a caller is a {@link WhetstoneError} with a permanent `code`. Match on the code, not on the message.
 * 2. `retryable` is set where the cause is known (an HTTP status, a full queue), never derived from a message.
 * 3. Errors thrown by user code (rollouts, rewards) are data: the error is recorded on its group, and the other rollouts continue. An abort
 *    of the whole run is rethrown unchanged.
 */

/** Key that marks errors of every copy of the package. */
const MARK = Symbol.for("whetstone.error");

/** Permanent error codes. `docs/reference/errors.md` has one row per code. */
export type ErrorCode =
  | "E_CONFIG"
  | "E_SHAPE"
  | "E_ARGUMENT"
  | "E_NOT_FOUND"
  | "E_CONFLICT"
  | "E_FORBIDDEN"
  | "E_UNSUPPORTED"
  | "E_TOO_LARGE"
  | "E_OVERLOADED"
  | "E_RATE_LIMIT"
  | "E_QUOTA"
  | "E_NO_SPACE"
  | "E_OUTPUT"
  | "E_DATA"
  | "E_BASE_MODEL"
  | "E_DATA_CORRUPTED"
  | "E_ENGINE"
  | "E_ENGINE_MISSING"
  | "E_UNAVAILABLE"
  | "E_NON_FINITE"
  | "E_INTERNAL"
  | "E_HTTP"
  | "E_CONNECTION"
  | "E_PROTOCOL"
  | "E_PREFLIGHT"
  | "E_TOO_MANY_EXCEPTIONS"
  | "E_REWARD"
  | "E_JUDGE"
  | "E_JUDGE_LIMIT"
  | "E_GRADER"
  | "E_ENVIRONMENT"
  | "E_AGENT_PROCESS"
  | "E_JOB_FAILED"
  | "E_JOB_CANCELLED"
  | "E_JOB_TIMEOUT";

/** Options shared by every error. */
export interface WhetstoneErrorOptions {
  /** Underlying error or thrown value. @default none */
  readonly cause?: unknown;
  /** Whether the same call may succeed later. @default false */
  readonly retryable?: boolean | undefined;
  /** Name of the offending parameter, as the caller wrote it. @default null */
  readonly param?: string | null | undefined;
}

/**
 * Base class of every error that this package throws.
 *
 * @example
 * ```ts
 * try {
 *   await service.health();
 * } catch (error) {
 *   if (WhetstoneError.isInstance(error) && error.retryable) console.log(error.code, error.param);
 * }
 * class QuotaError extends WhetstoneError {
 *   readonly code = "E_OVERLOADED";
 * }
 * throw new QuotaError("Expected at most 100 calls per minute, got 101", { retryable: true });
 * ```
 */
export abstract class WhetstoneError extends Error {
  /** Permanent code of the error's class. */
  abstract readonly code: ErrorCode;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  /** Name of the offending parameter, or null. */
  readonly param: string | null;
  /**
   * Mark by which {@link isInstance} recognizes errors of another copy of the package.
   *
   * @internal
   */
  readonly [MARK] = true;

  /**
   * Creates an error of a concrete class.
   *
   * @param message - Text of the error: expected value, actual value, remedy.
   * @param options - Cause, retryability and offending parameter.
   */
  constructor(message: string, options: WhetstoneErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.name = new.target.name;
    this.retryable = options.retryable ?? false;
    this.param = options.param ?? null;
  }

  /**
   * Returns whether `error` is a {@link WhetstoneError}, also one from another copy of the package.
   *
   * @param error - Any thrown value.
   * @returns true for an error with a permanent `code`.
   */
  static isInstance(error: unknown): error is WhetstoneError {
    return typeof error === "object" && error !== null && MARK in error;
  }

  /** Returns the fields that are safe in files and HTTP responses: no stack, no headers, no keys. */
  toJSON(): {
    /** Name of the error's class. */
    name: string;
    /** Permanent code. */
    code: ErrorCode;
    /** Expected value, received value and remedy. */
    message: string;
    /** Name of the offending parameter, or null. */
    param: string | null;
  } {
    return { name: this.name, code: this.code, message: this.message, param: this.param };
  }
}

/** An invalid setting; thrown before any side effect. */
export class ConfigError extends WhetstoneError {
  readonly code = "E_CONFIG";
}

/** Arrays whose shapes do not fit together. */
export class ShapeError extends WhetstoneError {
  readonly code = "E_SHAPE";
}

/** An argument outside its bounds. The service answers 400 or 422 and names the parameter. */
export class ArgumentError extends WhetstoneError {
  readonly code = "E_ARGUMENT";
}

/** The program of an agent did not start, or left no reward. */
export class AgentProcessError extends WhetstoneError {
  readonly code = "E_AGENT_PROCESS";
}

/** The requested object does not exist. The service answers 404. */
export class NotFoundError extends WhetstoneError {
  readonly code = "E_NOT_FOUND";
}

/** The request conflicts with the current state. The service answers 409. */
export class ConflictError extends WhetstoneError {
  readonly code = "E_CONFLICT";
}

/**
 * The key of the request does not permit the request: a session key on another route or for another session, or a session that is finished
 * or at a limit. The service answers 403.
 */
export class ForbiddenError extends WhetstoneError {
  readonly code = "E_FORBIDDEN";
}

/** A known field, option or file feature that this build does not support. The message names the unsupported feature. */
export class UnsupportedError extends WhetstoneError {
  readonly code = "E_UNSUPPORTED";
}

/** A body or file exceeds its size limit. The service answers 413. */
export class TooLargeError extends WhetstoneError {
  readonly code = "E_TOO_LARGE";
}

/** The service is at capacity. The service answers 429 with `Retry-After`. */
export class OverloadedError extends WhetstoneError {
  readonly code = "E_OVERLOADED";
}

/** An API key or an entity is at a limit that time relieves. The service answers 429 with `Retry-After`. */
export class RateLimitError extends WhetstoneError {
  readonly code = "E_RATE_LIMIT";
  /** Milliseconds after which the request may be sent again. */
  readonly retryAfterMs: number;

  /**
   * Creates the error of a request over a limit.
   *
   * @param message - Text of the error: the limit, its owner, and what to do.
   * @param options - Milliseconds after which the request may be sent again, and the options of every error.
   * @example
   * ```ts
   * throw new RateLimitError("Expected at most 10 requests per minute, got 11", { retryAfterMs: 6000 });
   * ```
   */
  constructor(message: string, { retryAfterMs, ...options }: WhetstoneErrorOptions & { readonly retryAfterMs: number }) {
    super(message, { retryable: true, ...options });
    this.retryAfterMs = retryAfterMs;
  }
}

/** An API key or an entity is at a limit that stays until something is deleted or the limit is raised. The service answers 403. */
export class QuotaError extends WhetstoneError {
  readonly code = "E_QUOTA";
}

/** The file system of the data directory has too little free space for the request. The service answers 507. */
export class NoSpaceError extends WhetstoneError {
  readonly code = "E_NO_SPACE";
}

/** Data that does not parse; the message names the file and line. */
export class DataError extends WhetstoneError {
  readonly code = "E_DATA";
}

/**
 * A base model that cannot be loaded: a file is missing or invalid, or the model's family, tokenizer, chat template or weights are
 * unsupported. The service answers 422; the message names the model, the cause and, where there is one, the remedy, and no path of the
 * service's machine.
 */
export class BaseModelError extends WhetstoneError {
  readonly code = "E_BASE_MODEL";
}

/**
 * A file that the service wrote itself is missing or differs from its digest. The service answers 500; the message names the object
 * (checkpoint, artifact file, job) and not its path.
 */
export class DataCorruptedError extends WhetstoneError {
  readonly code = "E_DATA_CORRUPTED";
}

/** The compute engine failed. */
export class EngineError extends WhetstoneError {
  readonly code = "E_ENGINE";
}

/**
 * A loss, a gradient, a weight or a log-probability is NaN or infinite; the message names the tensor or the token. The service
 * answers 422, because a repeated request fails again, and a training job fails.
 */
export class NonFiniteError extends WhetstoneError {
  readonly code = "E_NON_FINITE";
}

/**
 * The native binary of the embedded engine or store, or an optional package, cannot be loaded; the message has the command that repairs it.
 */
export class EngineMissingError extends WhetstoneError {
  readonly code = "E_ENGINE_MISSING";
}

/**
 * An engine worker died and is being restarted, or the Postgres database cannot be reached. Always retryable. The service answers 503 with
 * `Retry-After`.
 */
export class UnavailableError extends WhetstoneError {
  readonly code = "E_UNAVAILABLE";

  /**
   * Creates the error of a worker or database that cannot answer now; `retryable` is true.
   *
   * @param message - Text of the error: the unavailable part and, if known, the time until it is back.
   * @param options - Cause and offending parameter.
   * @example
   * ```ts
   * throw new UnavailableError("The sampler died and restarts in 1 s");
   * ```
   */
  constructor(message: string, options: Omit<WhetstoneErrorOptions, "retryable"> = {}) {
    super(message, { ...options, retryable: true });
  }
}

/** A violated internal invariant. The service answers 500. */
export class InternalError extends WhetstoneError {
  readonly code = "E_INTERNAL";
}

/**
 * Returns whether `error` is an `AbortError` or a `TimeoutError`, which are never retried and never wrapped.
 *
 * @param error - Any thrown value.
 * @returns true by the error's `name`; false for an abort with a reason of another name.
 * @example
 * ```ts
 * try {
 *   await service.health({ timeoutMs: 1000 });
 * } catch (error) {
 *   if (!isAbort(error)) throw error;
 * }
 * ```
 */
export function isAbort(error: unknown): boolean {
  return error instanceof Error && (error.name === "AbortError" || error.name === "TimeoutError");
}
