/** Errors with which following a job ends. */
import { WhetstoneError, type WhetstoneErrorOptions } from "../../base/errors.ts";

/** Base class of the errors of this file. */
abstract class JobError extends WhetstoneError {
  /** Id of the job; null for the error of `watchCheckpoints`, which watches all jobs of a model. */
  readonly jobId: string | null;

  /**
   * Created by the followers.
   *
   * @internal
   */
  constructor(message: string, options: WhetstoneErrorOptions & { readonly jobId: string | null }) {
    super(message, options);
    this.jobId = options.jobId;
  }
}

/** Error of a job that failed without a checkpoint; the message contains the service's reason. */
export class JobFailedError extends JobError {
  readonly code = "E_JOB_FAILED";
}

/** Error of a cancelled job, no matter who cancelled it. */
export class JobCancelledError extends JobError {
  readonly code = "E_JOB_CANCELLED";
}

/**
 * Error of a job that did not end within the timeout. The job keeps running; follow it again, or cancel it.
 *
 * @example
 * ```ts
 * try {
 *   await job.done({ timeoutMs: 60_000 });
 * } catch (error) {
 *   if (error instanceof JobTimeoutError) await job.cancel();
 * }
 * ```
 */
export class JobTimeoutError extends JobError {
  readonly code = "E_JOB_TIMEOUT";
}
