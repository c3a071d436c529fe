import { WhetstoneError, type WhetstoneErrorOptions } from "../errors.ts";

/** The job ended without a checkpoint because something went wrong; the message has the service's reason. */
export class JobFailedError extends WhetstoneError {
  readonly code = "E_JOB_FAILED";
  readonly jobId: string;

  constructor(message: string, options: WhetstoneErrorOptions & { readonly jobId: string }) {
    super(message, options);
    this.jobId = options.jobId;
  }
}

/** The job was cancelled, by this script or by somebody else. */
export class JobCancelledError extends WhetstoneError {
  readonly code = "E_JOB_CANCELLED";
  readonly jobId: string;

  constructor(message: string, options: WhetstoneErrorOptions & { readonly jobId: string }) {
    super(message, options);
    this.jobId = options.jobId;
  }
}

/** The job was not over in time. It goes on: follow it again, or cancel it. */
export class JobTimeoutError extends WhetstoneError {
  readonly code = "E_JOB_TIMEOUT";
  readonly jobId: string;

  constructor(message: string, options: WhetstoneErrorOptions & { readonly jobId: string }) {
    super(message, options);
    this.jobId = options.jobId;
  }
}
