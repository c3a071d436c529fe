/** Errors of storages. */
import { UnavailableError } from "../../base/errors.ts";

/** Options of {@link StorageError}. */
interface StorageErrorOptions {
  readonly cause?: unknown;
  /** HTTP status of the storage's answer; null without an answer. */
  readonly status?: number | null | undefined;
}

/**
 * The storage did not answer, or rejected a request. Nothing that the service has acknowledged is lost. The service answers 503 with
 * `Retry-After`; a training job waits and resumes from its last committed step.
 */
export class StorageError extends UnavailableError {
  /** HTTP status of the storage's answer; null without an answer. */
  readonly status: number | null;

  constructor(message: string, { cause, status = null }: StorageErrorOptions = {}) {
    super(message, cause === undefined ? {} : { cause });
    this.status = status;
  }
}
