import { WhetstoneError, type WhetstoneErrorOptions } from "../errors.ts";

/** What every error of a job carries. */
abstract class JobError extends WhetstoneError {
  /** The job; null where several were watched at once. */
  readonly jobId: string | null;

  constructor(message: string, options: WhetstoneErrorOptions & { readonly jobId: string | null }) {
    super(message, options);
    this.jobId = options.jobId;
  }
}

/** The job ended without a checkpoint because something went wrong; the message has the service's reason. */
export class JobFailedError extends JobError {
  readonly code = "E_JOB_FAILED";
}

/** The job was cancelled, by this script or by somebody else. */
export class JobCancelledError extends JobError {
  readonly code = "E_JOB_CANCELLED";
}

/** The job was not over in time. It goes on: follow it again, or cancel it. */
export class JobTimeoutError extends JobError {
  readonly code = "E_JOB_TIMEOUT";
}
